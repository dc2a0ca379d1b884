// Package feature has the feature levels of a cluster: what its nodes may write for each other, so that the programs of two releases work side by side while
// one node after another is upgraded (docs/decisions/2026-11-30-rolling-upgrade.md).
//
//	program       reads levels   writes at level 0              writes at level 1
//	the last one  0              state 1, polls of 0, NODE 1    is not there any more
//	this one      0 to 1         the same, byte by byte         state 2, polls of 1, NODE 2
//
// The meta group's state has the cluster's level. The seat raises it once every node of the map has said that its program reads the next one, and
// it never falls.
//
// R20: nobody writes a form before the level allows it. It holds because whoever encodes one takes its number from Of, with the level that the meta group has
// agreed on. If not, a node that was not upgraded yet meets bytes that it cannot read: its replica of the meta group stops.
//
// A release that changes what nodes write for each other adds to the table of forms.go, which says how, by an example; a test fails if a form of the code has no row there.
package feature

import (
	"errors"
	"fmt"
)

// A Level says what the nodes of a cluster may write. A cluster without a meta group is at level 0 for ever.
type Level uint8

// NoLevel is the level of a form that no program may write yet: what reads and checks it is there, and what it is for is not. No cluster has it.
const NoLevel Level = 255

// A Range is which levels a program reads: from Oldest to Newest. The zero Range is that of programs which say nothing of levels: they read level 0.
type Range struct {
	Oldest Level `json:"oldest"`
	Newest Level `json:"newest"`
}

// Here is what this program reads: the level of this release and that of the one before.
// Every program reads level 0 as yet, because each new cluster begins there, and one without a meta group stays there.
func Here() Range { return Range{Oldest: 0, Newest: 1} }

// Forms are the numbers of the forms that a level has written of what has a newer form at each level: the newest ones that the table allows (forms.go). The poll of the seat has no form of its own for a level: it
// has the level itself (package change).
type Forms struct {
	State uint8 // of the meta group's state (package meta): 2 has the level
	Node  uint8 // of the file NODE (package shardmap/format): 2 has the level, so that an older program does not start on it
}

// Of returns what a level has written. A level above those of this program is written as its newest one: the program fences itself before it writes anything of it.
func Of(l Level) Forms { return of[min(int(l), len(of)-1)] }

// of is Of, by level, worked out once.
var of = func() (list []Forms) {
	for l := range Here().Newest + 1 {
		list = append(list, Forms{newest(l, MetaState), newest(l, NodeFile)})
	}
	return list
}()

// ErrUnread: a program does not read the level of its cluster. Every *UnreadError is one.
var ErrUnread = errors.New("feature: this program does not read the feature level of its cluster")

// An UnreadError says that a program which reads some levels was to be part of a cluster of another one.
type UnreadError struct {
	Level Level // of the cluster
	Reads Range // of the program
}

// Error says which program would do.
func (e *UnreadError) Error() string {
	program := "a newer program"
	if e.Level < e.Reads.Oldest {
		program = "an older program"
	}
	return fmt.Sprintf("%v: the cluster is at level %d, and this program reads %v: start this node with %s", ErrUnread, e.Level, e.Reads, program)
}

// Is makes errors.Is find ErrUnread.
func (e *UnreadError) Is(target error) bool { return target == ErrUnread }

// Check returns nil if a program that reads r can be part of a cluster of a level, else an *UnreadError.
func (r Range) Check(l Level) error {
	if l < r.Oldest || l > r.Newest {
		return &UnreadError{l, r}
	}
	return nil
}

// String is a range for people.
func (r Range) String() string {
	if r.Oldest == r.Newest {
		return fmt.Sprintf("level %d alone", r.Newest)
	}
	return fmt.Sprintf("levels %d to %d", r.Oldest, r.Newest)
}
