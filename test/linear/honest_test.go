package linear

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// runFake lets workers work at a fake store and judges what they saw.
func runFake(t *testing.T, seed uint64, mistake string, ops int, dir string) (Summary, []string, int) {
	t.Helper()
	f := newFake(seed, mistake)
	c := &Checker{Name: "fake", Seed: seed, Dir: dir, Limit: time.Minute, Jobs: 2, Slack: Slack{Rate: 0.01, Early: time.Millisecond, Late: 20 * time.Millisecond}}
	w := New(Config{
		Seed: seed, Ops: ops, Stores: []Store{f}, Workers: 6, Objects: 8, OpsPerObject: 300,
		Can:     Abilities{Versions: true, Increment: true, TTL: true, Batch: true, Scan: true},
		TTLFrom: time.Millisecond, TTLUpTo: 20 * time.Millisecond, Done: c.Add,
	})
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum, failures := c.Close()
	return sum, failures, f.made
}

// TestCheckerAcceptsWhatIsRight: a store behind one lock is linearizable.
func TestCheckerAcceptsWhatIsRight(t *testing.T) {
	sum, failures, _ := runFake(t, *seedFlag, "", 30_000, t.TempDir())
	for _, f := range failures {
		t.Error(f)
	}
	if sum.Ops < 30_000 || sum.Objects < 30 || sum.Unknown == 0 || sum.Refused == 0 {
		t.Errorf("seed %d: too little was judged: %+v", *seedFlag, sum)
	}
	t.Logf("%+v", sum)
}

// TestCheckerFindsMistakes: one kind of mistake in forty operations, and the
// checker rejects what was seen, whichever kind it is.
func TestCheckerFindsMistakes(t *testing.T) {
	for _, mistake := range []string{
		"stale read", "false miss", "lost update", "double increment", "retry applied twice",
		"split batch", "half a batch", "resurrected delete", "condition ignored",
		"version used twice", "scan leaves out", "early expiry", "late expiry",
	} {
		t.Run(mistake, func(t *testing.T) {
			dir := t.TempDir()
			// A few mistakes of some kinds are made in a run, and each of them may come when
			// no client looks any more: they need the clock to show, or stand in a key that is
			// put anew next. Then more have to be made.
			ops, runs := 30_000, uint64(1)
			switch {
			case strings.HasSuffix(mistake, "expiry"):
				ops, runs = 10_000, 8 // which are slower
			case mistake == "resurrected delete", mistake == "retry applied twice":
				runs = 8
			}
			var failures []string
			made := 0
			for run := uint64(0); run < runs && len(failures) == 0; run++ {
				var more int
				_, failures, more = runFake(t, *seedFlag+run, mistake, ops, dir)
				made += more
			}
			if made == 0 {
				t.Fatalf("seed %d: the mistake was never made", *seedFlag)
			}
			if len(failures) == 0 {
				t.Fatalf("seed %d: %d mistakes were made, none found", *seedFlag, made)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.json"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no history was saved: %v", err)
			}
			// Judged again from the file it is still wrong, and there is a picture.
			o, slack, err := Load(files[0])
			if err != nil {
				t.Fatal(err)
			}
			if res := o.Check(slack, time.Minute); res.Verdict != porcupine.Illegal {
				t.Errorf("%s, judged again: %v", files[0], res.Verdict)
			}
			picture := files[0][:len(files[0])-len(".json")] + ".html"
			if info, err := os.Stat(picture); err != nil || info.Size() == 0 {
				t.Errorf("the picture: %v", err)
			}
		})
	}
}

// TestReplay judges a saved history again.
func TestReplay(t *testing.T) {
	if *replayFlag == "" {
		t.Skip("judges the history of -replay FILE")
	}
	o, slack, err := Load(*replayFlag)
	if err != nil {
		t.Fatal(err)
	}
	res := o.Check(slack, 5*time.Minute)
	t.Logf("%d operations: %v after %v", len(o.Ops), res.Verdict, res.Took)
	if res.Verdict != porcupine.Ok {
		t.Error(o.Explain(slack))
	}
}
