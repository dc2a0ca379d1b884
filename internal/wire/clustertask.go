package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// What an operator asks of a cluster whose nodes come and go (AdminCluster, MapFollow). Any node may be asked; the one that leads the meta group
// answers, and the others say which one that is.
//
//	kvclient                 any node              the new node            the seat
//	   ├── AdminCluster: which stores, may it join? ──▶ ClusterMay
//	   ├── AdminCluster ───▶ ClusterNotSeat: ask that one
//	   ├── AdminCluster: add ──────────────────────────────────────────────▶ ClusterTaken: the task, the map with the new node
//	   └── MapFollow: the map ─────────────────────────▶ MapAnswer
//
// A request may be made again: one that a running task fulfils already is answered by that task.

// MaxClusterQuestion bounds the argument of AdminCluster, in bytes: some hundred nodes.
const MaxClusterQuestion = 64 << 10

// What a ClusterQuestion may ask for.
const (
	ClusterJoin   = "join?"  // of the node that is asked itself: whether it may come into the cluster
	ClusterTasks  = "tasks"  // the tasks, and how far they are
	ClusterCancel = "cancel" // Task
	ClusterPause  = "pause"  // no move begins
	ClusterResume = "resume"
	// ClusterRecover replaces Group, which has lost its majority for good, by a new one that is made of the replica at From. It is done with Accept alone.
	ClusterRecover = "recover"
	// The others are kinds of tasks: add, remove, replace, rebalance, replicas.
)

// A ClusterQuestion is the argument of AdminCluster, a JSON text.
type ClusterQuestion struct {
	Do       string        `json:"do"`
	Nodes    []ClusterNode `json:"nodes,omitempty"`    // add: that come; remove: that go; replace: the one that comes
	Old      string        `json:"old,omitempty"`      // replace: the one that goes
	Replicas int           `json:"replicas,omitempty"` // replicas: how many
	Task     uint64        `json:"task,omitempty"`     // cancel
	Dry      bool          `json:"dry,omitempty"`      // say what would be done, and do nothing
	Group    uint32        `json:"group,omitempty"`    // recover
	From     string        `json:"from,omitempty"`     // recover: node
	Accept   bool          `json:"accept,omitempty"`   // recover: the operator says that the voters which do not answer are down for good, and accepts what is lost
}

// Changes says whether something is different when the question has been answered. Such a question may be asked again nevertheless.
func (q *ClusterQuestion) Changes() bool {
	return !q.Dry && q.Do != ClusterJoin && q.Do != ClusterTasks
}

// A ClusterNode is a node as a question names it. Of one that goes only the id counts.
type ClusterNode struct {
	ID     string `json:"id"`
	Weight uint32 `json:"weight,omitempty"` // 0: 1, or that of the node whose place it takes
	Zone   string `json:"zone,omitempty"`   // likewise
	Store  string `json:"store,omitempty"`  // 32 hex digits: NodeStatus.Store
}

// States of a ClusterAnswer.
const (
	ClusterNotSeat = "not-seat" // Seat is to be asked; "": nobody is known to lead the meta group now, ask again
	ClusterRefused = "refused"  // Why says why, for people; nothing was done
	ClusterBusy    = "busy"     // too much is under way at the seat, Why says what; nothing was done, ask again
	ClusterUnknown = "unknown"  // Why says why it is not known whether it was done; asking again does no harm
	ClusterTaken   = "taken"    // it is done: the task is agreed on, or was before
	ClusterPlan    = "plan"     // Dry: what would be done
	ClusterMay     = "may"      // ClusterJoin: the node may come
	ClusterWait    = "wait"     // ClusterJoin: it may soon, Why says when; ask again
)

// A ClusterAnswer is the JSON that AdminCluster answers. Fields are only ever added.
type ClusterAnswer struct {
	State      string `json:"state"`
	Why        string `json:"why,omitempty"`
	Seat       string `json:"seat,omitempty"` // node id
	Version    uint64 `json:"version"`        // of the state of the meta group
	MapVersion uint64 `json:"map_version"`
	Paused     bool   `json:"paused"`
	// Level is the feature level of the cluster, and LevelWhy what is in the way of a higher one; "": nothing, or the seat knows of no levels.
	Level    uint8         `json:"level,omitempty"`
	LevelWhy string        `json:"level_why,omitempty"`
	Task     *ClusterTask  `json:"task,omitempty"`  // add … replicas, cancel
	Tasks    []ClusterTask `json:"tasks,omitempty"` // tasks: by id
	// Map is the shard map that is in force with the task (cluster.AppendMap), for the nodes that come: they are told of it by MapFollow.
	Map  []byte       `json:"map,omitempty"`
	Loss *ClusterLoss `json:"loss,omitempty"` // recover
}

// A ClusterLoss is what a group loses that is recovered, as far as the nodes that answer know.
type ClusterLoss struct {
	Group   uint32   `json:"group"`
	From    string   `json:"from"`    // node
	Replica uint64   `json:"replica"` // of Group at From
	Last    uint64   `json:"last"`    // index of the newest entry there: what comes behind it is lost
	Heard   []string `json:"heard"`   // nodes whose replicas of the group answer
	Away    []string `json:"away"`    // nodes that have one by the map, and do not answer for it
	Made    uint32   `json:"made"`    // the group that takes its place, or will
	// Since is the group that was made of Group before, and is lost, too, with all that it has acknowledged; 0: none was.
	Since   uint32   `json:"since,omitempty"`
	Forgets []string `json:"forgets,omitempty"` // what nobody does any more: tasks, moves, maps that were agreed on; texts for people
	Done    bool     `json:"done,omitempty"`    // it was done before, and the other numbers are not known any more
}

// A ClusterTask is a task and how far it is.
type ClusterTask struct {
	ID     uint64        `json:"id"`   // 0 in a plan
	What   string        `json:"what"` // "add n4", "replace n1 by n5", "3 replicas"
	Kind   string        `json:"kind"`
	State  string        `json:"state"` // runs, canceling, done, canceled
	Why    string        `json:"why,omitempty"`
	Began  int64         `json:"began"` // milliseconds since 1970, by the clock of the node that led then
	Ended  int64         `json:"ended,omitempty"`
	LeftMS int64         `json:"left_ms,omitempty"` // how long it will take about, from how long its moves have taken; 0: not known
	Moves  []ClusterMove `json:"moves"`
}

// A ClusterMove is a replica that goes from a node to another one, comes, or goes.
type ClusterMove struct {
	Group  uint32 `json:"group"` // 0: the meta group
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	State  string `json:"state"`           // waits, moves, undoes, done, undone, dropped
	Step   string `json:"step,omitempty"`  // of one that moves: what is being done
	Why    string `json:"why,omitempty"`   // what it waits for
	Behind uint64 `json:"behind"`          // entries that the new replica lacks
	Bytes  uint64 `json:"bytes,omitempty"` // that a replica of the group has, about; 0: not known
	Began  int64  `json:"began,omitempty"`
	Ended  int64  `json:"ended,omitempty"`
}

// ParseClusterQuestion reads the argument of AdminCluster. ErrRange.
func ParseClusterQuestion(b []byte) (q ClusterQuestion, err error) {
	if len(b) > MaxClusterQuestion {
		return q, fmt.Errorf("%w: a question of %d bytes, at most %d", ErrRange, len(b), MaxClusterQuestion)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("%w: a question about a cluster: %.200s", ErrRange, CleanText([]byte(err.Error())))
	}
	if d.More() {
		return q, fmt.Errorf("%w: a question about a cluster, and something behind it", ErrRange)
	}
	return q, nil
}
