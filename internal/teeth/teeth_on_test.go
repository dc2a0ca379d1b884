//go:build teeth

package teeth

import "testing"

func TestPullAndRestore(t *testing.T) {
	restore := Pull(F2VersionInSum)
	if !Off(F2VersionInSum) || Off(F3MismatchNotAbsent) {
		t.Fatal("Pull must take out its own rule and no other")
	}
	restore()
	if Off(F2VersionInSum) {
		t.Fatal("restore did not put the rule back")
	}
	again := Pull(F2VersionInSum)
	restore() // the first one's restore is spent
	if !Off(F2VersionInSum) {
		t.Fatal("a spent restore put another's rule back")
	}
	again()
}

func TestPullTwicePanics(t *testing.T) {
	defer Pull(F1PutOrder)()
	defer func() {
		if recover() == nil {
			t.Error("the second Pull of a rule must panic")
		}
	}()
	Pull(F1PutOrder)
}

func TestHook(t *testing.T) {
	var got []uint64
	SetHook(func(point string, args ...uint64) {
		if point == "here" {
			got = append(got, args...)
		}
	})
	At("here", 7, 8)
	SetHook(nil)
	At("here", 9)
	if len(got) != 2 || got[0] != 7 || got[1] != 8 {
		t.Errorf("hook saw %v, want [7 8]", got)
	}
}

// A rule can be out from the start, for tests that know nothing of it.
func TestPulledByEnvironment(t *testing.T) {
	t.Setenv(Variable, F2VersionInSum.String())
	kept := rules
	defer func() { rules = kept }()
	rules = fromEnvironment()
	if !Off(F2VersionInSum) || Off(F3MismatchNotAbsent) {
		t.Error("the variable must take out its own rule and no other")
	}
	t.Setenv(Variable, "F2")
	defer func() {
		if recover() == nil {
			t.Error("a name of no rule must panic")
		}
	}()
	fromEnvironment()
}
