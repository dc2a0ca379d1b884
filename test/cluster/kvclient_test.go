package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// kvclient runs it on a place, to its end.
func (r *Rig) kvclient(t testing.TB, at Place, args ...string) (stdout string, code int, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if !slices.Contains(args, "--timeout") {
		args = append(args, "--timeout", "30s")
	}
	env := []string{"RDMAKV_FABRIC=" + r.opt.Fabric}
	if r.Secret != nil {
		env = append(env, "RDMAKV_SECRET_FILE="+r.seen(r.SecretFile()))
	}
	p, err := at.On().Start(node.Command{Path: path.Join(r.opt.Bin, "kvclient"), Args: args, Env: env, Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = p.Signal(9) })
	defer timer.Stop()
	code, _ = p.Wait()
	return out.String(), code, errOut.String()
}

// must runs kvclient on a place; it must end well.
func (r *Rig) must(t testing.TB, at Place, args ...string) string {
	t.Helper()
	out, code, errOut := r.kvclient(t, at, args...)
	if code != 0 {
		t.Fatalf("kvclient %q: exit code %d\n%s%s", args, code, out, errOut)
	}
	return out
}

// A status is as much as is needed of what "cluster status -o json" prints.
type status struct {
	Clustered bool   `json:"clustered"`
	ID        string `json:"id"`
	Map       struct {
		Version uint64   `json:"version"`
		Digest  string   `json:"digest"`
		Owners  []string `json:"owners"`
	} `json:"map"`
	Nodes []struct {
		ID        string   `json:"id"`
		State     string   `json:"state"`
		Weight    uint32   `json:"weight"`
		Shards    int      `json:"shards"`
		Endpoints []string `json:"endpoints"`
		Reached   bool     `json:"reached"`
		Status    *struct {
			Map struct {
				State  string `json:"state"`
				Digest string `json:"digest"`
			} `json:"map"`
			Gossip *struct {
				Members []struct {
					ID    string `json:"id"`
					State string `json:"state"`
				} `json:"members"`
			} `json:"gossip"`
		} `json:"status"`
	} `json:"nodes"`
}

// status asks a node for the cluster, from a place.
func (r *Rig) status(t testing.TB, at Place, by *Server) (st status, err error) {
	t.Helper()
	out, code, errOut := r.kvclient(t, at, "--server", by.Addr(), "cluster", "status", "-o", "json")
	if code != 0 {
		return st, fmt.Errorf("cluster status by %s: exit code %d: %s", by.ID, code, errOut)
	}
	return st, json.Unmarshal([]byte(out), &st)
}

// takesFor is the state of a node in the gossip of another; "" if that one does not
// say.
func (st *status) takesFor(by, about string) string {
	for _, n := range st.Nodes {
		if n.ID != by || n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		for _, m := range n.Status.Gossip.Members {
			if m.ID == about {
				return m.State
			}
		}
		return "unknown"
	}
	return ""
}

// awaitViews waits until some nodes take a node for what is wanted, one of several
// states.
func (r *Rig) awaitViews(t *testing.T, at Place, by []string, about string, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		st, err := r.status(t, at, r.Node(by[0]))
		if err != nil {
			t.Log(err) // it is asked again
		}
		var rest []string
		for _, id := range by {
			if state := st.takesFor(id, about); err != nil || !strings.Contains(" "+strings.Join(want, " ")+" ", " "+state+" ") {
				rest = append(rest, fmt.Sprintf("%s takes it for %q", id, state))
			}
		}
		if len(rest) == 0 {
			return
		}
		pause(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			t.Fatalf("%s should be %q: %s (%v)", about, want, strings.Join(rest, ", "), err)
		}
	}
}

// awaitAlive waits until every node takes every other for alive.
func (r *Rig) awaitAlive(t *testing.T, at Place) {
	t.Helper()
	for i, s := range r.Nodes {
		r.awaitViews(t, at, []string{r.Nodes[(i+1)%3].ID, r.Nodes[(i+2)%3].ID}, s.ID, "alive")
	}
}
