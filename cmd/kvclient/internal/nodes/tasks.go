package nodes

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// A tasksReport is what cluster tasks prints as JSON, with --watch one line each time
// that it has changed. Names are never changed; new ones may come.
type tasksReport struct {
	Seat       string              `json:"seat"` // the node that has answered; "" if it does not say so
	MapVersion uint64              `json:"map_version"`
	Paused     bool                `json:"paused"`
	Tasks      []admin.ClusterTask `json:"tasks"` // by id
}

// newTasksReport is the report of an answer. Its lists are never nil.
func newTasksReport(answer admin.ClusterAnswer) *tasksReport {
	r := &tasksReport{Seat: answer.Seat, MapVersion: answer.MapVersion, Paused: answer.Paused, Tasks: append([]admin.ClusterTask{}, answer.Tasks...)}
	for i := range r.Tasks {
		r.Tasks[i].Moves = append([]admin.ClusterMove{}, r.Tasks[i].Moves...)
	}
	return r
}

// clusterTasksCmd is cluster tasks.
func clusterTasksCmd(a *app.App) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "show how far changes of the cluster are",
		Long: `tasks lists the changes of the cluster that run and the last ones that have ended, and
below it each move of those that run which is under way, or that something is in the
way of. With --watch it does so again and again, on a terminal in the same place, until
no task runs; with -o json it then prints a line each time that something is different.`,
		SuggestFor: []string{"jobs", "progress", "moves"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				w := watcher{a: a, of: admin.Of(c), every: lookEvery}
				if watch {
					return w.all(cmd.Context())
				}
				answer, err := w.of.Tasks(cmd.Context())
				if err != nil {
					return changeFailure(err)
				}
				if a.Output == "json" {
					return a.PrintJSON(newTasksReport(answer))
				}
				return a.Print(newTasksReport(answer).text(time.Now()))
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until no task runs")
	return cmd
}

// over says whether nothing of a task is left to do.
func over(t *admin.ClusterTask) bool { return t.State == "done" || t.State == "canceled" }

// taskName is how a task is called in sentences.
func taskName(t *admin.ClusterTask) string {
	return fmt.Sprintf("task %d (%s)", t.ID, doctor.OneLine(t.What))
}

// moved counts the moves of a task that are over, in whatever way.
func moved(t *admin.ClusterTask) (n int) {
	for _, m := range t.Moves {
		if m.State == "done" || m.State == "undone" || m.State == "dropped" {
			n++
		}
	}
	return n
}

// share is which part of a task is done, by its moves.
func share(t *admin.ClusterTask) float64 {
	if len(t.Moves) == 0 {
		return 0
	}
	return float64(moved(t)) / float64(len(t.Moves))
}

// progressText is how far a task is, in few words.
func progressText(t *admin.ClusterTask) string {
	text := fmt.Sprintf("%d of %s", moved(t), count(len(t.Moves), "move", "moves"))
	if left := leftText(t); left != "" {
		text += ", " + left
	}
	return text
}

// leftText is how long a task will take, about; "": that is not known.
func leftText(t *admin.ClusterTask) string {
	if t.LeftMS <= 0 || over(t) {
		return ""
	}
	left := time.Duration(min(t.LeftMS, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	return "about " + left.Round(time.Second).String() + " left"
}

// moveText is a move in a sentence.
func moveText(m *admin.ClusterMove) string {
	from, to := doctor.OneLine(m.From), doctor.OneLine(m.To)
	way := from + " → " + to
	switch {
	case from == "":
		way = "→ " + to
	case to == "":
		way = from + " →"
	}
	return groupsOf([]admin.ClusterMove{*m}) + " " + way
}

// stepText is what is being done about a move, or what it waits for; "": nothing is known.
func stepText(m *admin.ClusterMove) string {
	var parts []string
	if m.Step != "" {
		parts = append(parts, doctor.OneLine(m.Step))
	}
	if m.Behind > 0 {
		parts = append(parts, cli.Thousands(int64(min(m.Behind, math.MaxInt64)))+" entries behind")
	}
	if m.Why != "" {
		parts = append(parts, doctor.OneLine(m.Why))
	}
	return strings.Join(parts, ", ")
}

// text is the report for people; now is for times of today.
func (r *tasksReport) text(now time.Time) string {
	if len(r.Tasks) == 0 {
		return r.pausedText() + "there are no tasks\n"
	}
	lines := []string{"task\twhat\tstate\tmoves\tbegan\ttook\tleft\n"}
	more := ""
	for i := range r.Tasks {
		t := &r.Tasks[i]
		end := now.UnixMilli()
		if t.Ended > 0 {
			end = t.Ended
		}
		took := "-"
		if t.Began > 0 && end >= t.Began && end-t.Began < math.MaxInt64/int64(time.Millisecond) {
			took = (time.Duration(end-t.Began) * time.Millisecond).Round(time.Second).String()
		}
		left := strings.TrimSuffix(leftText(t), " left")
		if left == "" {
			left = "-"
		}
		n := moved(t)
		if t.State == "canceled" { // those that were undone, or never began, are over, and nothing has come of them
			n = doneMoves(t)
		}
		lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", t.ID, doctor.OneLine(t.What), doctor.OneLine(t.State), n, len(t.Moves), clockText(t.Began, now), took, left))
		if t.Why != "" {
			more += fmt.Sprintf("\n%s: %s\n", taskName(t), doctor.OneLine(t.Why))
		}
		if !over(t) {
			more += movesText(t)
		}
	}
	return r.pausedText() + cli.Table(lines) + more
}

// pausedText says that moves are paused; "": they are not.
func (r *tasksReport) pausedText() string {
	if !r.Paused {
		return ""
	}
	return "moves are paused: none begins before kvclient cluster resume\n\n"
}

// clockText is when something began: the time of day, with the day if it is another one.
func clockText(ms int64, now time.Time) string {
	if ms <= 0 {
		return "-"
	}
	t := time.UnixMilli(ms).In(now.Location())
	if t.Year() < 0 || t.Year() > 9999 {
		return "?"
	}
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// maxMovesShown bounds the moves of a task that are shown by themselves.
const maxMovesShown = 20

// movesText are the moves of a task that are under way, and those that wait for something.
func movesText(t *admin.ClusterTask) string {
	lines := []string{"group\tfrom\tto\tstate\tsize\t\n"}
	left := 0
	for i := range t.Moves {
		m := &t.Moves[i]
		if m.State != "moves" && m.State != "undoes" && m.Why == "" {
			continue
		}
		if len(lines) > maxMovesShown {
			left++
			continue
		}
		group, from, to, size := fmt.Sprint(m.Group), doctor.OneLine(m.From), doctor.OneLine(m.To), "-"
		if m.Group == 0 {
			group = "meta"
		}
		if m.Bytes > 0 {
			size = cli.Bytes(int64(min(m.Bytes, math.MaxInt64)))
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\n", group, orDash(from), orDash(to), doctor.OneLine(m.State), size, stepText(m)))
	}
	if len(lines) == 1 {
		return ""
	}
	text := fmt.Sprintf("\n%s\n%s", taskName(t), cli.Table(lines))
	if left > 0 {
		text += fmt.Sprintf("and %s\n", count(left, "move more", "moves more"))
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// runningText is a line for cluster status about each task that is not over.
func runningText(tasks []admin.ClusterTask, paused bool) (text string) {
	for i := range tasks {
		t := &tasks[i]
		if over(t) {
			continue
		}
		state := map[string]string{"runs": "runs", "canceling": "is being canceled"}[t.State]
		if state == "" {
			state = doctor.OneLine(t.State)
		}
		text += fmt.Sprintf("%s %s: %s", taskName(t), state, progressText(t))
		if paused {
			text += "; moves are paused (kvclient cluster resume)"
		}
		text += "\n"
	}
	return text
}

// taskOf is the task of a number in an answer; nil: it ended long ago.
func taskOf(answer admin.ClusterAnswer, id uint64) *admin.ClusterTask {
	i := slices.IndexFunc(answer.Tasks, func(t admin.ClusterTask) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return &answer.Tasks[i]
}

// running says whether a task is not over.
func (r *tasksReport) running() bool {
	return slices.ContainsFunc(r.Tasks, func(t admin.ClusterTask) bool { return !over(&t) })
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
