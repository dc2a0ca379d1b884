package membership

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// An event is a line for the log. Each kind has a budget of its own.
type event struct {
	level slog.Level // of kinds that do not fix it
	kind  string
	msg   string
	args  []any
}

// These are the kinds of lines that repeat themselves.
const (
	sayLabel  = "label"
	sayAllow  = "allow"
	sayBusy   = "busy"
	sayKey    = "key"
	sayTwin   = "twin"
	sayForged = "forged"
	sayBad    = "bad"
	sayJoin   = "join"
	sayState  = "state"
)

// The budgets: so many lines of a kind in so long, and so many kinds.
const (
	logLines  = 3
	logPeriod = 10 * time.Second
	logKinds  = 64
	logQueue  = 256
)

// A journal is the log, written by a goroutine of its own, so that a slow disk or
// terminal stops no gossip.
type journal struct {
	log   *slog.Logger
	lines chan event
}

func newJournal(log *slog.Logger) *journal { return &journal{log, make(chan event, logQueue)} }

// say queues a line. It never blocks: a line for which there is no room is left
// out.
func (j *journal) say(e event) {
	select {
	case j.lines <- e:
	default:
	}
}

// write writes lines until ctx ends, and what is queued then.
func (j *journal) write(ctx context.Context) {
	b := budgets{}
	for {
		select {
		case e := <-j.lines:
			b.write(j.log, e, time.Now())
		case <-ctx.Done():
			for {
				select {
				case e := <-j.lines:
					b.write(j.log, e, time.Now())
				default:
					return
				}
			}
		}
	}
}

type budget struct {
	until   time.Time
	lines   int
	dropped int
}

type budgets map[string]*budget

// write logs an event within the budget of its kind. It says how many were left out
// since the last.
func (b budgets) write(log *slog.Logger, e event, now time.Time) {
	switch e.kind {
	case sayLabel, sayAllow, sayBusy, sayForged, sayBad:
		e.level = slog.LevelWarn
	case sayKey, sayTwin:
		e.level = slog.LevelError
	}
	if !log.Enabled(context.Background(), e.level) {
		return
	}
	k := b[e.kind]
	if k == nil {
		if len(b) >= logKinds {
			e.kind = "" // all that came late share one
		}
		if k = b[e.kind]; k == nil {
			k = &budget{}
			b[e.kind] = k
		}
	}
	if now.After(k.until) {
		k.until, k.lines = now.Add(logPeriod), 0
	}
	if k.lines >= logLines {
		k.dropped++
		return
	}
	k.lines++
	if k.dropped > 0 {
		e.args = append(e.args, "left out before", k.dropped)
		k.dropped = 0
	}
	log.Log(context.Background(), e.level, e.msg, e.args...)
}

// libraryLog takes the lines of memberlist's own log. Some events appear nowhere
// else: their lines become counters and messages of our own. The other lines are
// passed on, by level.
type libraryLog struct{ m *Members }

// Write implements io.Writer for a log.Logger without flags: each call has one
// line. memberlist may hold its locks.
func (l libraryLog) Write(line []byte) (int, error) {
	l.hear(strings.TrimSpace(string(line[:min(len(line), 1000)])))
	return len(line), nil
}

// hear takes one line of memberlist's log: it counts what only that line says, and
// passes the others on.
func (l libraryLog) hear(line string) {
	m := l.m
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if name, rest, ok := strings.Cut(rest, "] "); ok {
			line = strings.TrimPrefix(rest, "memberlist: ")
			switch name {
			case "DEBUG":
				level = slog.LevelDebug
			case "WARN", "ERR", "ERROR":
				level = slog.LevelWarn // what peers send may be wrong; the node goes on
			}
		}
	}
	switch {
	case strings.HasPrefix(line, "Stream connection"), strings.HasPrefix(line, "Initiating push/pull"), strings.HasPrefix(line, "failed to join"):
		return // comes for every one of them; the joiner logs what matters
	case wrongKey(line):
		from := fieldOf(line, "from=")
		if name, ok := strings.CutPrefix(line, "Push/Pull with "); ok && from == "" {
			from, _, _ = strings.Cut(name, " ")
		}
		m.stats.refuse(refuseKey, from)
		m.say(event{kind: sayKey, msg: "gossip with another key, or without one: the gossip keys differ; give both ends a common key in gossip.key_file", args: []any{"with", clean(from)}})
		return
	case strings.HasPrefix(line, "Suspect "):
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "Suspect "), " "); ok {
			callbacks{m}.suspect(id)
		}
	case strings.HasPrefix(line, "Was able to connect to ") && strings.Contains(line, " over TCP but UDP probes failed"):
		callbacks{m}.overTCP(fieldOf(line, "connect to "))
	case strings.HasPrefix(line, "Refuting an alive message"):
		line, _, _ = strings.Cut(line, " meta:") // bytes that no reader of the log can use
		level = slog.LevelInfo
	}
	if !m.log.Enabled(context.Background(), level) {
		return
	}
	m.say(event{level: level, kind: "library " + head(line), msg: "memberlist: " + clip(line)})
}

// head is what lines of one kind have in common: their first words.
func head(line string) string {
	words := strings.Fields(line)
	if len(words) > 2 {
		words = words[:2]
	}
	return strings.Join(words, " ")
}

func clip(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// fieldOf returns the word that follows a name in a line.
func fieldOf(line, name string) string {
	_, rest, ok := strings.Cut(line, name)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(rest, " ")
	return word
}
