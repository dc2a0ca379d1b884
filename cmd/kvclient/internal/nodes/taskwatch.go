package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// lookEvery is the rest between two looks at the tasks: moves take seconds at least,
// and a look costs the seat next to nothing.
const lookEvery = 500 * time.Millisecond

// A watcher looks at tasks again and again.
type watcher struct {
	a     *app.App
	of    changer
	every time.Duration
}

// A taskReport is what a change prints as JSON when it ends: the task as it was then.
type taskReport struct {
	Task       *admin.ClusterTask `json:"task"`
	MapVersion uint64             `json:"map_version"`
	Paused     bool               `json:"paused"`
}

// until shows how far a task is until it is over, and tells how it ended: a task that was canceled
// is a failure. When ctx ends it says that the task goes on, and returns app.ErrInterrupted.
func (w watcher) until(ctx context.Context, t *admin.ClusterTask) error {
	line := app.NewLine(w.a.Stderr)
	paused := false
	for {
		line.Set(share(t), watchText(t, paused))
		if !pause(ctx, w.every) {
			line.End()
			return w.left(t)
		}
		answer, err := w.of.Tasks(ctx)
		switch now := taskOf(answer, t.ID); {
		case err != nil && ctx.Err() != nil:
			line.End()
			return w.left(t)
		case err != nil:
			line.End()
			return fmt.Errorf("%s goes on, and cannot be looked at now (kvclient cluster tasks --watch tells when it can): %w", taskName(t), changeFailure(err))
		case now == nil:
			line.End()
			return fmt.Errorf("%s is not known any more: others have ended since, and only the last ones are kept; kvclient cluster status shows the cluster", taskName(t))
		case over(now):
			line.End()
			return w.told(answer, now, false)
		default:
			t, paused = now, answer.Paused
		}
	}
}

// left is the end of the watching by Ctrl-C.
func (w watcher) left(t *admin.ClusterTask) error {
	fmt.Fprintf(w.a.Stderr, "kvclient: %s goes on: kvclient cluster tasks --watch shows it, kvclient cluster cancel %d ends it\n", taskName(t), t.ID)
	return app.ErrInterrupted
}

// told prints a task that has begun or ended. One that was canceled is an error, unless that was what was wanted.
func (w watcher) told(answer admin.ClusterAnswer, t *admin.ClusterTask, wanted bool) error {
	if w.a.Output == "json" {
		of := *t
		of.Moves = append([]admin.ClusterMove{}, t.Moves...)
		if err := w.a.PrintJSON(taskReport{&of, answer.MapVersion, answer.Paused}); err != nil {
			return err
		}
	}
	text := ""
	switch t.State {
	case "done":
		text = fmt.Sprintf("%s is done: %s", taskName(t), count(len(t.Moves), "move", "moves"))
		if t.Began > 0 && t.Ended >= t.Began {
			text += fmt.Sprintf(" in %s", (time.Duration(min(t.Ended-t.Began, 1<<40)) * time.Millisecond).Round(time.Second))
		}
	case "canceled":
		text = fmt.Sprintf("%s was canceled: %s", taskName(t), cmp.Or(doctor.OneLine(t.Why), fmt.Sprintf("%d of %s are done", doneMoves(t), count(len(t.Moves), "move", "moves"))))
		if !wanted {
			return errors.New(text)
		}
	case "canceling":
		text = fmt.Sprintf("%s is being canceled: moves that have begun are undone, or finished (kvclient cluster tasks --watch)", taskName(t))
	default:
		text = fmt.Sprintf("%s runs: %s (kvclient cluster tasks --watch shows it, kvclient cluster cancel %d ends it)", taskName(t), progressText(t), t.ID)
	}
	if w.a.Output == "json" {
		return nil
	}
	return w.a.Print(text + "\n")
}

// doneMoves counts the moves that a task has brought about.
func doneMoves(t *admin.ClusterTask) (n int) {
	for _, m := range t.Moves {
		if m.State == "done" {
			n++
		}
	}
	return n
}

// watchText is how far a task is, in a line: what is under way is told of the first move that moves.
func watchText(t *admin.ClusterTask, paused bool) string {
	text := fmt.Sprintf("%s: %s", taskName(t), progressText(t))
	if t.State == "canceling" {
		text += ", it is being canceled"
	}
	if paused {
		text += ", paused (kvclient cluster resume)"
	}
	i := slices.IndexFunc(t.Moves, func(m admin.ClusterMove) bool { return m.State == "moves" || m.State == "undoes" })
	if i < 0 {
		i = slices.IndexFunc(t.Moves, func(m admin.ClusterMove) bool { return m.Why != "" })
	}
	if i >= 0 {
		text += "; " + moveText(&t.Moves[i])
		if step := stepText(&t.Moves[i]); step != "" {
			text += ": " + step
		}
	}
	return text
}

// all shows all tasks again and again until none runs: on a terminal in the same place, elsewhere when something is different.
func (w watcher) all(ctx context.Context) error {
	d := drawing{a: w.a, tty: cli.IsTerminal(w.a.Stdout)}
	for {
		answer, err := w.of.Tasks(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return app.ErrInterrupted
			}
			return changeFailure(err)
		}
		r := newTasksReport(answer)
		if err := d.show(r); err != nil {
			return err
		}
		if !r.running() {
			return nil
		}
		if !pause(ctx, w.every) {
			return app.ErrInterrupted
		}
	}
}

// A drawing is a report that is shown anew.
type drawing struct {
	a     *app.App
	tty   bool
	last  string // what was shown, without what only time changes
	lines int    // of it, on a terminal
}

// show shows a report, if it is another one than the last; on a terminal always, because of its times.
func (d *drawing) show(r *tasksReport) error {
	now, err := json.Marshal(r)
	if err != nil {
		return err
	}
	same := string(now) == d.last
	d.last = string(now)
	switch {
	case d.a.Output == "json" && same:
		return nil
	case d.a.Output == "json":
		return d.a.PrintJSON(r)
	case !d.tty && same:
		return nil
	case !d.tty:
		return d.a.Print(r.text(time.Now()))
	}
	// What is longer than a line would wrap, and the cursor would not get back to its beginning.
	lines := strings.Split(strings.TrimSuffix(r.text(time.Now()), "\n"), "\n")
	columns := cli.Columns(d.a.Stdout)
	for i := range lines {
		lines[i] = cli.Cut(lines[i], columns)
	}
	back := ""
	if d.lines > 0 {
		back = fmt.Sprintf("\x1b[%dA\x1b[J", d.lines)
	}
	d.lines = len(lines)
	return d.a.Print(back + strings.Join(lines, "\n") + "\n")
}
