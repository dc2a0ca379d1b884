package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// These are the JSON form of cluster status, on which scripts rely: names are never
// changed, new ones may come. Numbers of 64 bits are hexadecimal texts.
type (
	statusReport struct {
		Clustered bool          `json:"clustered"`
		Name      string        `json:"name"`
		ID        string        `json:"id"` // "" before there is a map
		Map       mapReport     `json:"map"`
		View      viewReport    `json:"view"`
		Nodes     []nodeReport  `json:"nodes"`  // by id; of the map, and those that gossip knows
		Groups    []admin.Group `json:"groups"` // of replicas, by id
		// Meta is the group that agrees on later maps, as the map has it; nil: there is none.
		Meta *admin.Group `json:"meta,omitempty"`
		// Tasks are the changes of the cluster that run, by id; nil: there are none, or they are not known.
		Tasks      []admin.ClusterTask `json:"tasks,omitempty"`
		TasksError string              `json:"tasks_error,omitempty"` // why they are not known
		Paused     bool                `json:"paused,omitempty"`      // no move of them begins
		// Level is the feature level of the cluster, and LevelWhy what is in the way of a higher one; nil: the seat has not said.
		Level    *uint8 `json:"level,omitempty"`
		LevelWhy string `json:"level_why,omitempty"`
	}
	// A mapReport is the shard map that the teller has in force.
	mapReport struct {
		Version uint64   `json:"version"` // 0: there is none yet
		Digest  string   `json:"digest"`
		Shards  int      `json:"shards"`
		Owners  []string `json:"owners"` // node id, by shard
	}
	// A viewReport says which node's view of the cluster the report begins with.
	viewReport struct {
		Teller  string `json:"teller"`
		Version uint64 `json:"version"`
	}
	// A nodeReport is one node three times: in the map, in gossip, and as it is
	// found. Where these differ is what an operator looks for.
	nodeReport struct {
		ID     string `json:"id"`
		Weight uint32 `json:"weight"`         // 0: not in the map
		Zone   string `json:"zone,omitempty"` // by the map
		Shards int    `json:"shards"`

		// These are what gossip reports, as the asked node knows it.
		State       string    `json:"state"` // alive, suspect, left, dead, unknown
		Since       time.Time `json:"since"`
		Gossip      string    `json:"gossip"`
		Endpoints   []string  `json:"endpoints"` // FABRIC://HOST:PORT
		Incarnation string    `json:"incarnation"`
		Table       tableInfo `json:"table"`
		MapVersion  uint64    `json:"map_version"`
		MapDigest   string    `json:"map_digest"`

		// These are what the data path says: a session was made, and its memory
		// read.
		Reached bool    `json:"reached"`
		Error   string  `json:"error,omitempty"`
		Agree   bool    `json:"agree"` // alive and reached, or neither
		Fabric  string  `json:"fabric"`
		Device  string  `json:"device"`
		ReadUS  float64 `json:"read_us"` // one one-sided READ; 0: this tenant has no right to
		SendUS  float64 `json:"send_us"` // one message and its answer

		// Status is what the node says of itself; nil if it says nothing.
		Status      *wire.NodeStatus `json:"status"`
		StatusError string           `json:"status_error,omitempty"`

		node *admin.Node // nil if it was not found; for cluster check, which asks more
	}
	// A tableInfo is what gossip tells of a node's table of regions.
	tableInfo struct {
		Version uint64 `json:"version"`
		Digest  string `json:"digest"`
		Regions uint32 `json:"regions"`
	}
)

// clusterStatusCmd is cluster status: the facts, without a judgement, which is what
// cluster check is for. Only two processes of one node make it fail, because
// everything else that it shows about such a node may be about either of them. A group
// without a leader, as in the first moments of a cluster, is a fact, and stands out.
func clusterStatusCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show the nodes of the cluster, by gossip and by the data path",
		Long: `status shows each node twice: as gossip believes it to be (a hint), and as it is
found by a session and a one-sided READ of its memory; then what the node says of
itself: shards, regions, fabrics, lease, memory, what is not durable or published
yet. In a cluster with replicas a second table has the groups: who leads, in which
term, and how many entries each replica is behind; (?) where the leader was not
heard, (learns) and (leaves) for replicas that come and go. Changes of the cluster that
run are told of, too (cluster tasks has more). It works with a server that is alone, too, and before there is a shard map.

-o json is made for scripts: names in it are never changed. The exit code is 1
while two processes are the same node, or were in the last ten minutes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				r, err := clusterStatus(cmd.Context(), a, c)
				if err != nil {
					return err
				}
				if a.Output == "json" {
					err = a.PrintJSON(r)
				} else {
					err = a.Print(r.text())
				}
				// The report comes first: the error points to it.
				if err == nil && len(r.conflicts()) > 0 {
					return errConflict
				}
				return err
			})
		},
	}
}

// errConflict ends a status that shows two processes of one node.
var errConflict = errors.New("two processes are, or claim to be, the same node: see above, and cluster check")

// clusterStatus asks a node for the cluster, and then each node for itself, side by
// side. If something could not be learned of a node, its part of the report says
// so; the error is only that of the first question, or of ctx.
func clusterStatus(ctx context.Context, a *app.App, c *client.Client) (*statusReport, error) {
	info, err := admin.Of(c).Cluster(ctx)
	if err != nil {
		return nil, err
	}
	// Lists are never null in JSON: a script may go through them without a check.
	r := &statusReport{
		Clustered: info.Clustered, Name: info.Name, ID: info.ID, View: viewReport{info.Teller, info.ViewVersion},
		Map: mapReport{info.MapVersion, hex16(info.MapDigest), info.Shards, append([]string{}, info.Owners...)}, Nodes: []nodeReport{},
	}
	for _, n := range info.Nodes {
		m := nodeReport{
			ID: n.ID, Weight: n.Weight, Zone: n.Zone, Shards: n.Shards, State: n.State, Since: n.Since, Gossip: n.Gossip, Endpoints: []string{},
			Incarnation: hex16(n.Incarnation), Table: tableInfo{n.TableVersion, hex16(n.TableDigest), n.Regions},
			MapVersion: n.MapVersion, MapDigest: hex16(n.MapDigest),
		}
		for _, e := range n.Endpoints {
			m.Endpoints = append(m.Endpoints, e.Fabric+"://"+e.Addr)
		}
		r.Nodes = append(r.Nodes, m)
	}
	if !info.Clustered { // one node without a name, so that scripts find the same fields
		r.Nodes = append(r.Nodes, nodeReport{State: "alive", Endpoints: []string{}})
	}
	r.Meta = info.Meta
	var tasks sync.WaitGroup
	if info.Meta != nil {
		tasks.Go(func() { r.askTasks(ctx, a, admin.Of(c)) })
	}
	atOnce(len(r.Nodes), func(i int) { r.Nodes[i].visit(ctx, a, c) })
	tasks.Wait()
	r.Groups = admin.GroupsOf(info.Founders, r.told())
	return r, ctx.Err()
}

// askTasks fills in the tasks that run. A cluster of an older version has none, and a
// tenant without the admin right is told so of each node already.
func (r *statusReport) askTasks(ctx context.Context, a *app.App, of changer) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	answer, err := of.Tasks(ctx)
	switch {
	case errors.Is(err, client.ErrUnsupported) || errors.Is(err, client.ErrDenied):
	case err != nil:
		r.TasksError = a.Explain(err)
	default:
		r.Paused, r.Level, r.LevelWhy = answer.Paused, &answer.Level, answer.LevelWhy
		for _, t := range newTasksReport(answer).Tasks {
			if !over(&t) {
				r.Tasks = append(r.Tasks, t)
			}
		}
	}
}

// visit fills in what the data path and the node itself say. One goroutine writes
// each report.
func (n *nodeReport) visit(ctx context.Context, a *app.App, c *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	// Each step is the condition of the next, and the first that fails is the
	// error.
	node, err := admin.Of(c).Node(n.ID)
	var read, send time.Duration
	if err == nil {
		n.node = node
		// The first READ pays for the session, so the second is the one to measure.
		if _, err = node.PingRead(ctx); err == nil {
			read, err = node.PingRead(ctx)
		}
		if errors.Is(err, client.ErrUnsupported) { // a tenant without one-sided access
			err = nil // a message tells as well whether the node is there
		}
	}
	if err == nil {
		send, err = node.Ping(ctx)
	}
	// A node that is only suspected may well answer: no disagreement.
	alive := n.State == "alive" || n.State == "suspect"
	n.Reached, n.Agree = err == nil, (err == nil) == alive
	if err != nil {
		n.Error = a.Explain(err)
		return
	}
	// There was an answer, so there is a session, which knows the way it took.
	s := node.Server()
	n.Fabric, n.Device = s.Fabric, s.Device
	n.ReadUS, n.SendUS = float64(read.Nanoseconds())/1e3, float64(send.Nanoseconds())/1e3
	// This needs the admin right. A tenant without it still sees which nodes are
	// there.
	text, err := node.Do(ctx, wire.AdminStatus, "")
	if err == nil {
		n.Status = new(wire.NodeStatus)
		err = json.Unmarshal(text, n.Status)
	}
	// A node that is reached and says nothing of itself is still reached.
	if err != nil {
		n.Status, n.StatusError = nil, a.Explain(err)
		if errors.Is(err, client.ErrDenied) {
			n.StatusError = "this tenant has no admin right"
		}
	}
}

// text is the report for people: a table, and below it notes about single nodes.
func (r *statusReport) text() string {
	var b strings.Builder
	switch {
	case !r.Clustered:
		b.WriteString("a server alone: gossip.bind is empty there\n\n")
	case r.Map.Version == 0:
		fmt.Fprintf(&b, "cluster %s, no shard map yet: kvclient cluster init NODE...\n\n", r.Name)
	default:
		fmt.Fprintf(&b, "cluster %s (%s)\nshard map version %d, digest %s, %d shards\n", r.Name, r.ID, r.Map.Version, r.Map.Digest, r.Map.Shards)
		b.WriteString(r.metaText() + r.levelText() + runningText(r.Tasks, r.Paused))
		if r.TasksError != "" {
			fmt.Fprintf(&b, "whether the cluster is being changed is not known: %s\n", doctor.OneLine(r.TasksError))
		}
		b.WriteString("\n")
	}
	// There is one line a node, as wide as a terminal; longer texts are notes
	// below.
	lines := []string{"node\tshards\tgossip\tdata path\tread µs\tsend µs\tmap\tregions\tmemory\tlag\tsessions\n"}
	if r.zoned() {
		lines[0] = "node\tzone" + strings.TrimPrefix(lines[0], "node")
	}
	notes := ""
	for i := range r.Nodes {
		line, note := r.Nodes[i].text(r)
		lines = append(lines, line)
		notes += note
	}
	for _, c := range r.conflicts() {
		notes += fmt.Sprintf("\nCONFLICT %s: %s\n", doctor.OneLine(c.Node), c.text())
	}
	return b.String() + cli.Table(lines) + r.groupsText() + notes
}

// text is a node as a line of the table, with the notes below it. Texts that came
// from the node are made one harmless line: a terminal must not obey another
// machine.
func (n *nodeReport) text(r *statusReport) (line, note string) {
	name, path := n.ID, "not reached"
	if name == "" {
		name = "-"
	}
	read, send := "-", "-"
	if n.Reached {
		path = n.Fabric + "/" + n.Device
		send = fmt.Sprintf("%.1f", n.SendUS)
		if n.ReadUS != 0 {
			read = fmt.Sprintf("%.1f", n.ReadUS)
		}
	} else {
		note += fmt.Sprintf("\n%s is not reached: %s\n", name, doctor.OneLine(n.Error))
	}
	if !n.Agree {
		note += fmt.Sprintf("\n%s: gossip believes it %s, the data path says otherwise\n", name, n.State)
	}
	// A value that the node does not report is a dash, not a zero.
	cells := []string{"-", "-", "-", "-", "-"}
	if s := n.Status; s != nil {
		state := doctor.OneLine(s.Map.State)
		// The digest is 16 digits, and equal or not: a word tells that better.
		if s.Map.State == "committed" && s.Map.Digest == r.Map.Digest {
			state = "same"
		} else if r.another(s) {
			state = fmt.Sprintf("version %d", s.Map.Version)
		} else if s.Map.State == "committed" {
			state = "OTHER"
		}
		cells = []string{
			state, fmt.Sprintf("%d+%d", s.Regions.Index, s.Regions.Items),
			cli.Bytes(int64(s.Memory.Used)) + " of " + cli.Bytes(int64(s.Memory.Limit)),
			fmt.Sprint(s.Lag.Unpublished), fmt.Sprint(s.Sessions),
		}
		if s.Regions.Retired > 0 {
			cells[1] += fmt.Sprintf(" (%d retired)", s.Regions.Retired)
		}
		note += fmt.Sprintf("\n%s: %s, up %s, lease %d ms, beat %d ms ago, at %s\n", name, programText(&s.NodeProgram),
			(time.Duration(s.Uptime) * time.Second).String(), s.LeaseMS, s.BeatAgeMS, doctor.OneLine(strings.Join(s.Fabrics, ", ")))
	} else if n.StatusError != "" {
		note += fmt.Sprintf("\n%s says nothing of itself: %s\n", name, doctor.OneLine(n.StatusError))
	}
	if r.zoned() {
		name += "\t" + orDash(doctor.OneLine(n.Zone))
	}
	return strings.Join(append([]string{name, fmt.Sprint(n.Shards), n.State, path, read, send}, cells...), "\t") + "\n", note
}

// levelText is the feature level of the cluster for people; "": the seat has not said.
func (r *statusReport) levelText() string {
	switch {
	case r.Level == nil:
		return ""
	case r.LevelWhy == "":
		return fmt.Sprintf("feature level %d\n", *r.Level)
	}
	return fmt.Sprintf("feature level %d, which does not rise: %s\n", *r.Level, doctor.OneLine(r.LevelWhy))
}

// programText is which program a node runs, for people.
func programText(p *wire.NodeProgram) string {
	text := doctor.OneLine(p.Version)
	if p.Revision != "" {
		text += " (" + doctor.OneLine(p.Revision[:min(12, len(p.Revision))]) + ")"
	}
	switch l := p.Levels; {
	case l == nil:
	case l.Hold:
		text += fmt.Sprintf(", reads feature levels %d to %d and holds the cluster's", l.Oldest, l.Newest)
	default:
		text += fmt.Sprintf(", reads feature levels %d to %d", l.Oldest, l.Newest)
	}
	return text
}
