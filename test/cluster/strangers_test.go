package cluster

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStrangers: nodes that do not belong to the cluster, or believe that they are
// another node, do it no harm, and are told why.
func TestStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	d := newDrill(w.born())
	spare := w.net.Host("spare")
	all := d.both("n1", "n2", "n3")

	d.part("wrong gossip key", all, func(t *testing.T) {
		file := filepath.Join(w.dir, "wrong.key")
		key := make([]byte, 32)
		rand.Read(key)
		must(t, os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)), 0o600))
		s := w.NewServer("n4", spare)
		must(t, s.Start(within(t), "--gossip-key-file", file))
		w.staysOut(t, s, []string{"gossip keys differ"}, []string{"gossip keys differ"})
	})
	d.part("wrong label", all, func(t *testing.T) {
		s := w.NewServer("n5", spare)
		must(t, s.Start(within(t), "--cluster-name", "someone-else"))
		w.staysOut(t, s, []string{"cluster of another name", "someone-else", "ours=test"}, []string{"names of the clusters differ"})
		// A stranger is not told what the name is here.
		if said := s.Said(); strings.Contains(said, `"test" there`) || strings.Contains(said, `\"test\" there`) {
			t.Errorf("the stranger was told the cluster's name: %s", said)
		}
	})
	d.part("id in use", all, func(t *testing.T) {
		s := w.NewServer("n1", spare)
		s.dir = filepath.Join(w.dir, "another-n1")
		err := s.Start(within(t))
		if err == nil {
			// It may learn of the other only after it has begun to serve; then it ends.
			if code, waitErr := s.Process().WaitExit(patience); waitErr != nil || code == 0 {
				t.Errorf("the second n1 ended with %d, %v", code, waitErr)
			}
			err = fmt.Errorf("%s", s.Said())
		}
		for _, word := range []string{"n1", w.Node("n1").Place().IP()} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("it does not say %q: %v", word, err)
			}
		}
		must(t, s.Kill())
	})
	d.part("another node's data", d.both("n1", "n3"), func(t *testing.T) {
		n2 := w.Node("n2")
		must(t, n2.Stop(patience))
		s := w.NewServer("n6", spare)
		s.dir = n2.Dir()
		err := s.Start(within(t))
		if err == nil {
			t.Error("n6 has started on the data of n2")
			must(t, s.Kill())
		} else if !strings.Contains(err.Error(), "n2") || !strings.Contains(err.Error(), "n6") {
			t.Errorf("it does not name both nodes: %v", err)
		}
		must(t, n2.Start(within(t)))
	})
	d.end()
}

// warned returns a line of a log that warns and has all words; "" if there is none.
func warned(log string, words []string) string {
lines:
	for line := range strings.SplitSeq(log, "\n") {
		if !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR") {
			continue
		}
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		return line
	}
	return ""
}

// staysOut waits until a node of the cluster and a stranger have each warned with
// some words, and checks that neither is in the other's view; then it ends.
func (w *world) staysOut(t *testing.T, s *Server, here, there []string) {
	t.Helper()
	ctx := within(t)
	ours, theirs := "", ""
	for ours == "" || theirs == "" {
		for _, n := range w.Nodes {
			ours = cmp.Or(ours, warned(n.Said(), here))
		}
		theirs = warned(s.Said(), there)
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("warnings with %q here and %q there: %q, %q; the stranger:\n%s", here, there, ours, theirs, s.Said())
		}
	}
	t.Logf("the cluster: %s", ours)
	t.Logf("the stranger: %s", theirs)
	for _, by := range []*Server{w.Node("n1"), s} {
		st, err := w.status(t, w.net.Host("east"), by)
		must(t, err)
		for _, n := range st.Nodes {
			if (n.ID == s.ID) != (by == s) {
				t.Errorf("%s is in the view of %s: %+v", n.ID, by.ID, n)
			}
		}
	}
	must(t, s.Kill())
}
