package parts

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestGoingBecomesLive: a leader has decided to remove an idle upload, and does not lead any more when it begins (remove returns
// ErrNotLeader). The next leader has another idea of when it was idle, and lets its head pass: the value is there, acknowledged. When the
// first one leads again it removes the value's parts, because going is for ever; a look changes nothing.
func TestGoingBecomesLive(t *testing.T) {
	r := newRig(t, true)
	v := valueOf("k", 1)
	r.elsewhere(v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
	for n := 1; n <= 2; n++ {
		r.elsewhere(v.keys.Key(n), []byte("part"))
	}
	r.now = r.now.Add(11 * time.Second)
	if due := r.Due(10, false, 0, all); len(due) != 1 {
		t.Fatalf("due: %+v", due)
	}
	// Nothing of it was removed: another leads by now, and has this done.
	r.elsewhere([]byte("k"), v.head)
	// This one leads again.
	r.LookAgain()
	r.Look()
	r.Found(3, v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
	r.Settle(v.id, v.head)
	for n := 1; n <= 2; n++ {
		r.FoundPart(3, v.keys.Key(n))
	}
	r.EndLook()
	if due := r.Due(10, false, 0, all); len(due) != 0 {
		t.Errorf("the parts of a value that is there are removed: %+v", due)
	}
	for _, s := range r.Strays() {
		t.Errorf("to be removed: %q, version %v", s.Key, s.Version)
	}
}

// TestProgressElsewhere: an upload that made progress a moment ago, at another replica, is removed as idle by one that comes to lead.
func TestProgressElsewhere(t *testing.T) {
	r := newRig(t, true)
	v := valueOf("k", 1)
	r.elsewhere(v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
	r.now = r.now.Add(9 * time.Second) // Idle is 10
	r.elsewhere(v.keys.Key(1), []byte("part"))
	r.now = r.now.Add(2 * time.Second)
	if due := r.Due(10, false, 0, all); len(due) != 0 {
		t.Errorf("its last part came 2 s ago, and it is removed as idle: %+v", due)
	}
}

// TestRecordDuringLook: the record of an upload that another replica lets begin while this one looks is published behind the look's
// page, and not noted, because the look is to find it. Its parts and the head of its value, which is acknowledged, are strays then: who
// comes to lead before the next tick of its collector removes them.
func TestRecordDuringLook(t *testing.T) {
	r := newRig(t, false)
	v := valueOf("k", 1)
	r.Look()
	// The page of the scan in which the record would stand is made. Then:
	r.elsewhere(v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
	r.EndLook()
	for n := 1; n <= 2; n++ {
		r.elsewhere(v.keys.Key(n), []byte("part"))
	}
	r.elsewhere([]byte("k"), v.head)
	for _, s := range r.Strays() {
		t.Errorf("to be removed: %q, version %v", s.Key, s.Version)
	}
	if st := r.Stats(); st.Values != 1 {
		t.Errorf("%+v", st)
	}
}
