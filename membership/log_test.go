package membership

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A kind of line has its budget; what is left out is counted; kinds beyond the
// bound share one.
func TestLogIsRateLimited(t *testing.T) {
	t.Parallel()
	out := &capture{}
	log := slog.New(slog.NewTextHandler(out, nil))
	b := budgets{}
	now := time.Now()
	for range 100 {
		b.write(log, event{kind: sayLabel, msg: "again"}, now)
	}
	b.write(log, event{kind: sayKey, msg: "another"}, now)
	b.write(log, event{kind: sayLabel, msg: "later"}, now.Add(logPeriod+time.Second))
	text := out.String()
	if n := strings.Count(text, "msg=again"); n != logLines {
		t.Errorf("%d lines of one kind, want %d", n, logLines)
	}
	if !strings.Contains(text, "level=ERROR msg=another") || !strings.Contains(text, fmt.Sprintf(`level=WARN msg=later "left out before"=%d`, 100-logLines)) {
		t.Errorf("log:\n%s", text)
	}
	for i := range 10 * logKinds {
		b.write(log, event{level: slog.LevelInfo, kind: fmt.Sprint(i), msg: "kind"}, now)
	}
	if len(b) > logKinds+1 {
		t.Errorf("%d kinds are remembered", len(b))
	}
}

// The words of memberlist's log that we hear something in. That it still uses
// them, TestSuspicionShows and TestWrongKeyAndLabelAreNamedOnBothSides see.
func TestHear(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		level slog.Level
		text  string // "": nothing is passed on
	}{
		"[DEBUG] memberlist: Stream connection from=1.2.3.4:5":                                                           {},
		"[DEBUG] memberlist: failed to join 1.2.3.4:5: no installed keys could decrypt the message":                      {},
		"[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=1.2.3.4:5":                {0, "the gossip keys differ"},
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=1.2.3.4:5":            {0, "the gossip keys differ"},
		"[ERR] memberlist: failed to receive: encryption is configured but remote state is not encrypted from=1.2.3.4:5": {0, "the gossip keys differ"},
		"[ERR] memberlist: Push/Pull with b failed: no installed keys could decrypt the message":                         {0, "the gossip keys differ"},
		"[ERR] memberlist: Failed to decode ping request: EOF from=1.2.3.4:5":                                            {slog.LevelWarn, "Failed to decode ping"},
		"[WARN] memberlist: Refuting an alive message for 'self' (1.2.3.4:5) meta:([1 2] VS [3 4]), vsn:([1] VS [2])":    {slog.LevelInfo, "Refuting an alive message for 'self' (1.2.3.4:5)"},
		"[INFO] memberlist: Marking b as failed, suspect timeout reached (0 peer confirmations)":                         {slog.LevelInfo, "Marking b"},
		"no level at all": {slog.LevelInfo, "no level"},
	} {
		m := bare()
		m.log = slog.New(slog.NewTextHandler(&capture{}, &slog.HandlerOptions{Level: slog.LevelDebug}))
		(libraryLog{m}).hear(line)
		select {
		case e := <-m.lines:
			if want.text == "" || !strings.Contains(e.msg, want.text) || e.level != want.level || strings.Contains(e.msg, "VS") {
				t.Errorf("%s\n%+v", line, e)
			}
		default:
			if want.text != "" {
				t.Errorf("%s: nothing is said", line)
			}
		}
	}
}

// A member whose probes fail is suspected, then dead; one that comes back is
// alive.
func TestSuspicionShows(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	patient := func(c *Config) { c.Profile = LAN } // suspects for seconds
	a := launch(t, n, "a", patient)
	b := launch(t, n, "b", func(c *Config) { joining(a)(c); patient(c) })
	seesAll(t, a, b)
	n.setCut(func(from, to string) bool { return true })
	eventually(t, a.Members, "b is suspected", func() bool {
		return stateOf(a.Members, "b") == cluster.Suspect || strings.Contains(a.log.String(), "a node is suspect")
	})
	n.setCut(nil)
	seesAll(t, a, b)

	// A suspicion of which nothing more is heard ends by itself.
	m := bare()
	m.peers["b"] = &peer{Member: cluster.Member{ID: "b", Role: cluster.RoleServer, State: cluster.Alive}}
	(libraryLog{m}).hear("[INFO] memberlist: Suspect b has failed, no acks received")
	m.publishView()
	if stateOf(m, "b") != cluster.Suspect {
		t.Error("the log of the library is not heard")
	}
	m.peers["b"].suspect = time.Now().Add(-time.Hour)
	m.publishView()
	if stateOf(m, "b") != cluster.Alive {
		t.Error("suspected for ever")
	}
}
