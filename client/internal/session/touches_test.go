package session

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// The sample is bounded, whatever is read.
func TestTouchesAreBounded(t *testing.T) {
	var s Touches
	s.start()
	for i := range uint64(100_000) {
		s.add(i * 0x9e3779b97f4a7c15)
	}
	if list := s.take(0, 3); list.Len() != wire.MaxTouches || list.At(0).Count < 8 {
		t.Errorf("%d touches, the first %+v", list.Len(), list.At(0))
	}
	if list := s.take(0, 0); list.Len() != 0 {
		t.Errorf("%d touches are told twice", list.Len())
	}
	s.sampled = 1 << 20
	if s.look(1e9, time.Hour); s.shift.Load() == 64 {
		t.Error("the sample did not become smaller")
	}
	for i := range int64(30) {
		s.look((2+i)*1e9, time.Hour)
	}
	if s.shift.Load() != 64 {
		t.Error("the sample did not become larger again")
	}
}
