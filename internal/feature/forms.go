package feature

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Family is a kind of thing that nodes write for each other. Each of its forms has a number, or a name, in the code (internal/house TestFormsHaveLevels knows where).
type Family string

const (
	MetaState   Family = "state of the meta group" // package meta: Format
	MetaField   Family = "field of that state"     // package meta: names in the JSON of the state, its tasks and their moves
	TaskKind    Family = "kind of task"            // package meta: Kind
	TaskState   Family = "state of a task"         // package meta: TaskState
	MoveState   Family = "state of a move"         // package meta: MoveState
	Question    Family = "question of a node"      // package wire: Question…, the first byte
	ReportField Family = "field of a report"       // package seat: names in the JSON of what a node answers to the seat's poll
	NodeFile    Family = "NODE"                    // package shardmap/format
	ShardMap    Family = "shard map"               // package cluster: the first byte of AppendMap
	Gossip      Family = "metadata of gossip"      // package cluster: the first byte of AppendMeta
	View        Family = "view"                    // package cluster: that of AppendView
	RegionTable Family = "region table"            // package cluster: that of AppendTable
	Document    Family = "document"                // package wire: DocumentKind
	GroupEntry  Family = "entry of a group"        // package store/internal/entry: Kind
	EngineEntry Family = "entry of the engine"     // package consensus: Kind
	GroupWrite  Family = "write of a group"        // package store/internal/logged: Format
	GroupPiece  Family = "piece of a value"        // package store/internal/logged: pieceFormat
)

// A Form is one form of a family, or several, and the level from which on it may be written (R20), because every program that is in a cluster of that level reads it.
type Form struct {
	Family Family
	Which  string // numbers or names, with spaces between them
	Level  Level
	Why    string // what it is for; "" at level 0: the release before levels reads it
}

// forms is the table. Level 0 is what the release before levels reads: that is the commit which test/cluster builds as the previous release. So shard maps of format 4, which `cluster recover` makes, are of level
// 0: a cluster that has lost nodes for good could not rise to a level that allows them, because who is lost says no more what it reads.
//
// How a form is added, as an example a shard map of format 6 that has quotas:
//
//  1. Its number goes into the code: quotaFormat = 6, in package cluster. TestFormsHaveLevels fails now, and names it.
//  2. It gets a row here, of the newest level of this release (Here().Newest), which all branches of one release share: {ShardMap, "6", 1, "quotas"}. The level rises by one with the
//     first form that is added behind a release, and with it Here; a release has one level at most.
//  3. Whoever decides that it is written asks before: Allows(level, ShardMap, 6), with the level that the meta group has agreed on (meta.State.Level), or the one that the node has noted (Levels.At). At a
//     lower level the operation is refused, with that error, or the older form is written. Parsers read it at every level: what is written follows the level, what is read the program.
//     A shard map needs no question of its own if it comes by the meta group, which takes none that its level does not allow (meta.State.Apply). One with which the meta group is made anew does not come by it, so
//     what `cluster recover` needs has to be of a level that every program reads which may be left in the cluster.
//  4. A test has it refused at the level before. previousRelease in test/cluster is the program that must never meet it.
//
// A kind of document, which a client asks a node for, is in the table so that its level is thought of: a node that does not know it answers with bad-request, and whoever needs it of all nodes, as a backup does,
// asks Allows before. A field of a report is there for the same reason: a program that does not know it leaves it out, and one that does has to bear that it is missing, so it may be written at every level.
//
// What is no form: other fields of JSON that readers leave out if they do not know them (wire.NodeStatus, wire.ClusterAnswer), the level that a poll has (package change: it is 0 at level 0, and anything else is refused
// by programs that know no levels), and what two ends agree on when they meet (message types of package wire and of the nodes' protocol: there a new one needs a new version, or a bit of Connect).
var forms = []Form{
	{MetaState, "1", 0, ""},
	{MetaState, "2", 1, "the level"},
	{MetaField, "version map paused tasks id kind nodes replicas state began ended moves group from to from_id to_id", 0, ""},
	{MetaField, "level", 1, "the level"},
	{TaskKind, "add remove replace rebalance replicas", 0, ""},
	{TaskState, "runs canceling done canceled", 0, ""},
	{MoveState, "waits moves undoes done undone dropped", 0, ""},
	{Question, "1 2 3 4", 0, ""},
	{Question, "5", 1, "which level the node holds; older programs answer with an error, which counts as level 0"},
	{ReportField, "map life stamp groups stopped kept meta_life reads hold", 0, ""},
	{ReportField, "group replica leads heard term config voters learns last shown match away last_term step why shard votes", 0, ""},
	{NodeFile, "1", 0, ""},
	{NodeFile, "2", 1, "the level, which keeps programs out that do not read it"},
	{ShardMap, "1 2 3 4", 0, ""},
	{ShardMap, "5", 1, "groups that began with what nodes had"},
	{Gossip, "1", 0, ""},
	{View, "1", 0, ""},
	{RegionTable, "1", 0, ""},
	{Document, "1 2 3 4 5 6 7 8 17 18 19 20 21 22 23 24 25 26", 0, ""},
	{GroupEntry, "1 2 3", 0, ""},
	{EngineEntry, "1 2 3", 0, ""},
	{GroupWrite, "1", 0, ""},
	{GroupPiece, "2", 0, ""},
}

// All returns the table. It is not to be changed.
func All() []Form { return forms }

// ErrNeeds: the cluster's feature level does not allow a form yet. Every *NeedsError is one.
var ErrNeeds = errors.New("feature: the feature level of the cluster is too low")

// A NeedsError says what a form needs.
type NeedsError struct {
	Family Family
	Form   int
	Needs  Level // 255: no program writes it
	Level  Level // of the cluster
}

// Error says what to do.
func (e *NeedsError) Error() string {
	return fmt.Sprintf("%v: %s %d needs level %d, and the cluster is at level %d: start every node with a newer program (kvclient cluster status says which are behind, and which one holds the level)",
		ErrNeeds, e.Family, e.Form, e.Needs, e.Level)
}

// Is makes errors.Is find ErrNeeds.
func (e *NeedsError) Is(target error) bool { return target == ErrNeeds }

// Allows returns nil if a numbered form of a family may be written in a cluster of a level, else a *NeedsError. A form that is not in the table may never be.
func Allows(l Level, f Family, form int) error {
	if needs := Needs(f, form); l < needs {
		return &NeedsError{f, form, needs, l}
	}
	return nil
}

// Needs is the level from which on a numbered form of a family may be written. 255: it is not in the table, and no program writes it.
func Needs(f Family, form int) Level {
	needs := Level(255)
	for i := range forms {
		if forms[i].Family == f && slices.Contains(strings.Fields(forms[i].Which), fmt.Sprint(form)) {
			needs = forms[i].Level
		}
	}
	return needs
}

// newest is the highest numbered form of a family below 255 that a level allows; 0: none.
func newest(l Level, f Family) (n uint8) {
	for form := range 255 {
		if Allows(l, f, form) == nil {
			n = uint8(form)
		}
	}
	return n
}
