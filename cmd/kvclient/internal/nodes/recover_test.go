package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// A fakeRecovery answers one request.
type fakeRecovery struct {
	answer admin.ClusterAnswer
	err    error
	asked  []admin.RecoverRequest
	told   []string // what the user had been told when it was asked
	stderr bytes.Buffer
}

func (f *fakeRecovery) Recover(_ context.Context, r admin.RecoverRequest) (admin.ClusterAnswer, error) {
	f.asked = append(f.asked, r)
	f.told = append(f.told, f.stderr.String())
	return f.answer, f.err
}

// TestRecoverFlags: flags that make no sense end with the exit code of usage, before any node is asked; without --accept-loss nothing is asked for that changes something.
func TestRecoverFlags(t *testing.T) {
	for _, c := range []struct{ group, from, want string }{
		{"", "n1", "are needed"}, {"3", "", "are needed"}, {"", "", "are needed"}, {"x", "n1", "is no group"}, {"-1", "n1", "is no group"}, {"4294967296", "n1", "is no group"},
		{"3", "N1\x1b", "node id"},
	} {
		usage := (*cli.UsageError)(nil)
		if _, err := recoverRequest(c.group, c.from, true); !errors.As(err, &usage) || !strings.Contains(fmt.Sprint(err), c.want) || strings.ContainsAny(fmt.Sprint(err), "\x1b\n") {
			t.Errorf("%q, %q: %v", c.group, c.from, err)
		}
	}
	for _, accept := range []bool{true, false} {
		if r, err := recoverRequest("3", "n1", accept); err != nil || r != (admin.RecoverRequest{Group: 3, From: "n1", AcceptLoss: accept, Dry: !accept}) {
			t.Errorf("accepted %v: %+v, %v", accept, r, err)
		}
	}
}

// TestRecoverTold: who recovers is told what is lost and what to do next, in text and as JSON; a loss that was not accepted is a failure.
func TestRecoverTold(t *testing.T) {
	loss := admin.ClusterLoss{Group: 3, From: "n1", Replica: 2, Last: 118, Heard: []string{"n1"}, Away: []string{"n2", "n3\x1b[2J"}, Made: 7}
	done := admin.ClusterLoss{Group: 3, From: "n1", Made: 7, Done: true}
	alone, again := loss, loss
	again.Since, again.Forgets = 5, []string{"a move of task 2 (add n4\x1b[2J)"}
	alone.Away = nil
	meta, metaDone := loss, admin.ClusterLoss{From: "n1", Done: true}
	meta.Group, meta.Made = 0, 0
	for name, c := range map[string]struct {
		dry   bool
		loss  *admin.ClusterLoss
		err   error
		says  []string
		fails string
	}{
		"accepted":       {false, &loss, nil, []string{"node n1 has entries up to 118", "no answer from n2, n3?[2J", "group 7 takes its place", "cluster replicas 3"}, ""},
		"not accepted":   {true, &loss, nil, []string{"node n1 has entries up to 118", "is lost"}, "nothing was changed: --accept-loss"},
		"once more":      {false, &again, nil, []string{"group 5 was made of it before, and is lost", "forgotten: a move of task 2 (add n4?[2J)"}, ""},
		"nobody else":    {false, &alone, nil, []string{"no other node has a replica"}, ""},
		"before":         {false, &done, nil, []string{"recovered before, from node n1: it is group 7"}, ""},
		"before, dry":    {true, &done, nil, []string{"recovered before"}, ""},
		"the meta group": {false, &meta, nil, []string{"node n1 has entries up to 118", "made anew, with one replica, at node n1", "cluster rebalance"}, ""},
		"meta, before":   {false, &metaDone, nil, []string{"recovered before, and node n1 leads it"}, ""},
		"refused":        {false, nil, fmt.Errorf("x: %w: group 3 has a leader", admin.ErrRefused), nil, "group 3 has a leader"},
		"no answer":      {false, nil, nil, nil, "cluster status"},
	} {
		for _, output := range []string{"", "json"} {
			var out bytes.Buffer
			f := &fakeRecovery{answer: admin.ClusterAnswer{MapVersion: 5, Loss: c.loss}, err: c.err}
			err := runRecover(t.Context(), &app.App{Stdout: &out, Stderr: &f.stderr, Output: output}, f, admin.RecoverRequest{Group: 3, From: "n1", Dry: c.dry, AcceptLoss: !c.dry}, false)
			asks := 1
			if !c.dry && c.loss != nil && !c.loss.Done {
				asks = 2
				if f.asked[1].Dry || !strings.Contains(f.told[1], "n1 has entries up to 118") || strings.Contains(f.told[1], "\x1b") {
					t.Errorf("%s: it is done when %q was told", name, f.told[1])
				}
			}
			if len(f.asked) != asks || !f.asked[0].Dry || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) || errors.Is(err, admin.ErrRefused) != (c.err != nil) {
				t.Errorf("%s, %q: asked %v, %v", name, output, f.asked, err)
			}
			if output == "json" && c.says != nil {
				var r recoverReport
				if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.MapVersion != 5 || r.Loss == nil || r.Loss.Made != c.loss.Made || r.Recovered == c.dry && !c.loss.Done {
					t.Errorf("%s: %s, %v", name, &out, err)
				}
				continue
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: %q, want %q", name, &out, want)
				}
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("%s: %q steers the terminal", name, &out)
			}
		}
	}
}

// TestRecoverAsks: who sits at a terminal is asked once he has seen what is lost, and whatever is no clear yes changes nothing.
func TestRecoverAsks(t *testing.T) {
	for text, yes := range map[string]bool{"y\n": true, "yes\n": true, "n\n": false, "\n": false, "": false} {
		var out bytes.Buffer
		f := &fakeRecovery{answer: admin.ClusterAnswer{MapVersion: 5, Loss: &admin.ClusterLoss{Group: 3, From: "n1", Last: 118, Made: 7}}}
		err := runRecover(t.Context(), &app.App{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &f.stderr}, f, admin.RecoverRequest{Group: 3, From: "n1", AcceptLoss: true}, true)
		if (err == nil) != yes || len(f.asked) == 2 != yes || !strings.Contains(f.stderr.String(), "up to 118") || !strings.Contains(f.stderr.String(), "is that accepted?") {
			t.Errorf("%q: asked %v, %v; told %q", text, f.asked, err, &f.stderr)
		}
	}
}
