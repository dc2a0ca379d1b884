package setup

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestRequestLife(t *testing.T) {
	var l Life
	if !l.Take() || l.Take() {
		t.Error("taken once and not again")
	}
	if l.Leave() {
		t.Error("a request of the program is over when its peer leaves")
	}
	if left, err := l.Answer(); !left || err != nil {
		t.Errorf("answered: left %v, %v", left, err)
	}
	if _, err := l.Answer(); !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("answered twice: %v", err)
	}
	var alone Life
	if !alone.Leave() || alone.Leave() || alone.Take() {
		t.Error("a queued request whose peer leaves is over, once")
	}
}
