package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A State is where a group stands behind the entries up to one. The base has it under a key of its
// own, written by the same ingest as what the entries came to, and a snapshot carries it: what
// has a state has all that was applied up to there, and nothing else.
type State struct {
	consensus.State
	Turn   Turn
	Shards []uint16 // of the group, rising: for ever
}

// The bytes of a State (little endian):
//
//	 0        1      2          4           6          8         16     24      32     40
//	+--------+------+----------+-----------+----------+---------+------+-------+------+---------+---------+--------+
//	| format | 0    | voters   | learners  | shards   | applied | term | reign | next | config  | members | shards |
//	| 8: 1   |      | 16: many | 16: many  | 16: many | 64      | 64   | 64    | 64   | 64      |         | 16 ... |
//	+--------+------+----------+-----------+----------+---------+------+-------+------+---------+---------+--------+
//
// config is the index of the entry that made the configuration. A member is its id, the length
// of its node's name and the name:
//
//	+------+-------+------+
//	| id   | size  | name |
//	| 64   | 8     |      |
//	+------+-------+------+
const stateHead = 48

// AppendState appends a state.
func AppendState(b []byte, s *State) []byte {
	le := binary.LittleEndian
	b = append(b, Format, 0)
	b = le.AppendUint16(b, uint16(len(s.Config.Voters)))
	b = le.AppendUint16(b, uint16(len(s.Config.Learners)))
	b = le.AppendUint16(b, uint16(len(s.Shards)))
	for _, v := range [...]uint64{s.Applied, s.Term, s.Turn.Reign, s.Turn.Next, s.Config.Index} {
		b = le.AppendUint64(b, v)
	}
	for _, list := range [2][]consensus.Member{s.Config.Voters, s.Config.Learners} {
		for _, m := range list {
			b = le.AppendUint64(b, uint64(m.ID))
			b = append(append(b, byte(len(m.Node))), m.Node...)
		}
	}
	for _, id := range s.Shards {
		b = le.AppendUint16(b, id)
	}
	return b
}

// ParseState reads a state. It takes any bytes.
//
// Errors: ErrNewer, ErrMalformed.
func ParseState(b []byte) (s State, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) > 0 && b[0] != Format:
		return s, fmt.Errorf("a state of format %d, expected %d: %w", b[0], Format, ErrNewer)
	case len(b) < stateHead:
		return s, malformed("a state of %d bytes", len(b))
	case b[1] != 0:
		return s, fmt.Errorf("a state with flags %#x: %w", b[1], ErrNewer)
	}
	voters, learners, shards := int(le.Uint16(b[2:])), int(le.Uint16(b[4:])), int(le.Uint16(b[6:]))
	if voters > consensus.MaxMembers || learners > consensus.MaxMembers {
		return s, malformed("a state of %d voters and %d learners, of at most %d", voters, learners, consensus.MaxMembers)
	}
	s.Applied, s.Term = le.Uint64(b[8:]), le.Uint64(b[16:])
	s.Turn = Turn{Reign: le.Uint64(b[24:]), Next: le.Uint64(b[32:])}
	s.Config.Index = le.Uint64(b[40:])
	rest := b[stateHead:]
	if s.Config.Voters, rest, err = parseMembers(rest, voters); err == nil {
		s.Config.Learners, rest, err = parseMembers(rest, learners)
	}
	if err == nil {
		s.Shards, rest, err = parseShards(rest, shards)
	}
	switch {
	case err != nil:
		return State{}, err
	case len(rest) > 0:
		return State{}, malformed("%d bytes behind a state", len(rest))
	case s.Turn.Next > layout.MaxNumber+1:
		return State{}, malformed("a state whose next number is %d, the last is %d", s.Turn.Next, layout.MaxNumber)
	case s.Config.Index > s.Applied || s.Turn.Reign > s.Applied || s.Term == 0 && s.Applied > 0:
		return State{}, malformed("a state at entry %d of term %d, with configuration %d and reign %d", s.Applied, s.Term, s.Config.Index, s.Turn.Reign)
	}
	if err := s.Config.Check(); err != nil && s.Applied > 0 {
		return State{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, nil
}

// parseMembers reads so many members, and returns what is behind them.
func parseMembers(b []byte, n int) (list []consensus.Member, rest []byte, err error) {
	for i := range n {
		if len(b) < 9 || len(b)-9 < int(b[8]) {
			return nil, nil, malformed("member %d of %d is not there", i, n)
		}
		size := int(b[8])
		list = append(list, consensus.Member{ID: consensus.ReplicaID(binary.LittleEndian.Uint64(b)), Node: string(b[9 : 9+size])})
		b = b[9+size:]
	}
	return list, b, nil
}

// parseShards reads so many shards, and returns what is behind them.
func parseShards(b []byte, n int) (list []uint16, rest []byte, err error) {
	if len(b) < 2*n {
		return nil, nil, malformed("%d shards in %d bytes", n, len(b))
	}
	for i := range n {
		id := binary.LittleEndian.Uint16(b[2*i:])
		if i > 0 && id <= list[i-1] {
			return nil, nil, malformed("shard %d behind shard %d", id, list[i-1])
		}
		list = append(list, id)
	}
	return list, b[2*n:], nil
}
