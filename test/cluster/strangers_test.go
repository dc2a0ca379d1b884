package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStrangers: nodes that do not belong to the cluster, or think that they are
// somebody else, do it no harm, and are told why.
func TestStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
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
		_ = s.Start(within(t), "--gossip-key-file", file) // whether it starts or not
		w.staysOut(t, s, "key")
	})
	d.part("wrong label", all, func(t *testing.T) {
		s := w.NewServer("n5", spare)
		_ = s.Start(within(t), "--cluster-name", "someone-else")
		w.staysOut(t, s, "someone-else")
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

// staysOut waits until both a stranger and a node of the cluster have said a word
// about it, and checks that neither is in the other's view; then it ends.
func (w *world) staysOut(t *testing.T, s *Server, word string) {
	t.Helper()
	ctx := within(t)
	said := func() (here, there bool) {
		for _, n := range w.Nodes {
			here = here || strings.Contains(n.Said(), word)
		}
		return here, strings.Contains(s.Said(), word)
	}
	for {
		here, there := said()
		if here && there {
			break
		}
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("the word %q: said by the cluster %v, by the stranger %v:\n%s", word, here, there, s.Said())
		}
	}
	st, err := w.status(t, w.net.Host("east"), w.Node("n1"))
	must(t, err)
	for _, n := range st.Nodes {
		if n.ID == s.ID {
			t.Errorf("%s is in the view of the cluster: %+v", s.ID, n)
		}
	}
	must(t, s.Kill())
}
