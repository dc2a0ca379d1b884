package wire

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckQuestion: a question is what it was, and no other bytes are one.
func TestCheckQuestion(t *testing.T) {
	for _, q := range []CheckQuestion{{Group: 1}, {Group: 1<<32 - 1}, {Group: 7, Index: 1}, {Group: 7, Index: 1<<64 - 1}} {
		if got, err := ParseCheckQuestion([]byte(q.String())); err != nil || got != q {
			t.Errorf("%v: %v, %v", q, got, err)
		}
	}
	for _, text := range []string{
		"", "put", "put ", "put 0", "put 01", "put +1", "put -1", "put 4294967296", "put 1 ", "put 1 2", "Put 1", "put  1", " put 1", "put 1\n",
		"at", "at 1", "at 1 ", "at 1 0", "at 0 1", "at 1 01", "at 1 18446744073709551616", "at 1 2 3", "get 1", strings.Repeat("9", 1000),
	} {
		if q, err := ParseCheckQuestion([]byte(text)); !errors.Is(err, ErrRange) || q != (CheckQuestion{}) || len(err.Error()) > 300 {
			t.Errorf("%q: %v, %v", text, q, err)
		}
	}
}

// FuzzCheckQuestion: any bytes are a question, in its one form, or an error.
func FuzzCheckQuestion(f *testing.F) {
	f.Add([]byte("put 3"))
	f.Add([]byte("at 3 4711"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseCheckQuestion(b)
		if err == nil && (q.Group == 0 || q.String() != string(b)) {
			t.Fatalf("%q is %v", b, q)
		}
	})
}

// TestCheckAnswer: an answer that no node gives is none.
func TestCheckAnswer(t *testing.T) {
	put, at := CheckQuestion{Group: 3}, CheckQuestion{Group: 3, Index: 9}
	sum := strings.Repeat("0a", 32)
	for _, c := range []struct {
		q    CheckQuestion
		a    GroupCheck
		want bool
	}{
		{put, GroupCheck{Group: 3, Index: 9, State: CheckPut}, true},
		{put, GroupCheck{Group: 3, State: CheckNotLeader, Leader: "n2"}, true},
		{put, GroupCheck{Group: 3, State: CheckBusy}, true},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckDone, Digest: sum}, true},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckBehind}, true},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckBusy}, true},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckFailed, Why: "damaged"}, true},

		{put, GroupCheck{Group: 4, Index: 9, State: CheckPut}, false},
		{put, GroupCheck{Group: 3, State: CheckPut}, false},
		{put, GroupCheck{Group: 3, Index: 9, State: CheckNotLeader}, false},
		{put, GroupCheck{Group: 3, State: CheckDone, Digest: sum}, false},
		{put, GroupCheck{Group: 3, State: CheckBehind}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckPut}, false},
		{at, GroupCheck{Group: 3, Index: 8, State: CheckDone, Digest: sum}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckDone}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckDone, Digest: sum[2:]}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckDone, Digest: "zz" + sum[2:]}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: CheckReads, Digest: sum}, false},
		{at, GroupCheck{Group: 3, Index: 9, State: "well"}, false},
		{at, GroupCheck{Group: 3, Index: 9}, false},
	} {
		if got := c.a.Valid(c.q); got != c.want {
			t.Errorf("%v answered by %+v: valid is %v", c.q, c.a, got)
		}
	}
	for state, final := range map[string]bool{CheckBehind: false, CheckWaits: false, CheckReads: false, CheckDone: true, CheckFailed: true, CheckUnknown: true, CheckBusy: true} {
		if got := (&GroupCheck{State: state}).Final(); got != final {
			t.Errorf("%s: final is %v", state, got)
		}
	}
}
