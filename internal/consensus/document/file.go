package document

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// The bytes of the file, and of a snapshot (little endian). It is whole after a crash in its old form or in its new one:
//
//	 0                        8       12      16        24        32     40
//	+------------------------+-------+-------+---------+---------+------+---
//	| magic and format       | group | 0     | replica | applied | term | ...
//	| "rkv doc" and 8: 1     | 32    | 32    | 64      | 64      | 64   |
//	+------------------------+-------+-------+---------+---------+------+---
//	 40       48       50         52      56                        end-8
//	+--------+--------+----------+-------+---------+---------+----------+
//	| config | voters | learners | size  | members | content | xxhash64 |
//	| 64     | 16     | 16       | 32    |         | size    | 64       |
//	+--------+--------+----------+-------+---------+---------+----------+
//
//	replica   whose file it is; of a snapshot: who has sent it
//	applied   the index of the newest entry that the content has, and term is that entry's. 0: the replica has got nothing from the
//	          others yet; then everything behind it is 0, too, and there are neither members nor a content
//	config    the index of the entry that made the configuration
//	voters    how many of the members are; the learners stand behind them
//	size      of the content, at most MaxContent
//	xxhash64  of everything before it
//
// A member is its id, the length of its node's name and the name:
//
//	+------+-------+------+
//	| id   | size  | name |
//	| 64   | 8     |      |
//	+------+-------+------+
const (
	fileFormat = 1

	offGroup    = 8
	offZero     = offGroup + 4
	offReplica  = offZero + 4
	offApplied  = offReplica + 8
	offOfTerm   = offApplied + 8
	offConfig   = offOfTerm + 8
	offVoters   = offConfig + 8
	offLearners = offVoters + 2
	offSize     = offLearners + 2
	fileHead    = offSize + 4
	sumLen      = 8
	memberHead  = 8 + 1

	// maxFile bounds the file, in bytes.
	maxFile = fileHead + 2*consensus.MaxMembers*(memberHead+consensus.MaxNode) + MaxContent + sumLen
)

var fileMagic = [8]byte{'r', 'k', 'v', ' ', 'd', 'o', 'c', fileFormat}

// MaxContent bounds what Content.Encode returns, in bytes.
const MaxContent = 1 << 20

// What is wrong with a file or with a snapshot.
var (
	// ErrDamaged: it is not as it was written.
	ErrDamaged = errors.New("document: damaged")
	// ErrNewer: a newer version of this program has written it.
	ErrNewer = errors.New("document: written by a newer version of this program: use that one")
	// ErrOther: it is of another group or of another replica.
	ErrOther = errors.New("document: of another replica")
)

// A file is what a file holds. Content aliases what was parsed.
type file struct {
	group   consensus.GroupID
	replica consensus.ReplicaID
	state   consensus.State
	content []byte
}

// appendFile appends the bytes of a file.
func appendFile(b []byte, f *file) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = slices.Grow(b, fileHead+len(f.content)+sumLen)
	b = append(b, fileMagic[:]...)
	b = le.AppendUint32(b, uint32(f.group))
	b = le.AppendUint32(b, 0)
	for _, v := range [...]uint64{uint64(f.replica), f.state.Applied, f.state.Term, f.state.Config.Index} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint16(b, uint16(len(f.state.Config.Voters)))
	b = le.AppendUint16(b, uint16(len(f.state.Config.Learners)))
	b = le.AppendUint32(b, uint32(len(f.content)))
	for _, list := range [2][]consensus.Member{f.state.Config.Voters, f.state.Config.Learners} {
		for _, m := range list {
			b = le.AppendUint64(b, uint64(m.ID))
			b = append(append(b, byte(len(m.Node))), m.Node...)
		}
	}
	b = append(b, f.content...)
	return le.AppendUint64(b, xxhash.Sum64(b[start:]))
}

// parseFile reads a file. It takes any bytes, and what it takes appendFile would write, byte for byte.
//
// Errors: ErrDamaged, ErrNewer.
func parseFile(b []byte) (f file, err error) {
	le := binary.LittleEndian
	if len(b) < fileHead+sumLen || len(b) > maxFile || !bytes.Equal(b[:7], fileMagic[:7]) {
		return f, fmt.Errorf("%w: %d bytes that do not begin as a document does", ErrDamaged, len(b))
	}
	end := len(b) - sumLen
	if xxhash.Sum64(b[:end]) != le.Uint64(b[end:]) {
		return f, fmt.Errorf("%w: the checksum does not fit", ErrDamaged)
	}
	if b[7] > fileFormat {
		return f, fmt.Errorf("format %d, expected %d: %w", b[7], fileFormat, ErrNewer)
	}
	f.group, f.replica = consensus.GroupID(le.Uint32(b[offGroup:])), consensus.ReplicaID(le.Uint64(b[offReplica:]))
	f.state.Applied, f.state.Term, f.state.Config.Index = le.Uint64(b[offApplied:]), le.Uint64(b[offOfTerm:]), le.Uint64(b[offConfig:])
	voters, learners, size := int(le.Uint16(b[offVoters:])), int(le.Uint16(b[offLearners:])), le.Uint32(b[offSize:])
	if b[7] != fileFormat || le.Uint32(b[offZero:]) != 0 || f.replica == 0 || voters > consensus.MaxMembers || learners > consensus.MaxMembers || size > MaxContent {
		return file{}, fmt.Errorf("%w: its head makes no sense", ErrDamaged)
	}
	rest := b[fileHead:end]
	if f.state.Config.Voters, rest, err = parseMembers(rest, voters); err == nil {
		f.state.Config.Learners, rest, err = parseMembers(rest, learners)
	}
	if err == nil && uint64(len(rest)) != uint64(size) {
		err = fmt.Errorf("%w: its content has %d bytes, expected %d", ErrDamaged, len(rest), size)
	}
	if err == nil {
		err = f.check(rest)
	}
	if err != nil {
		return file{}, err
	}
	f.content = rest
	return f, nil
}

// check holds a state to what one can be. ErrDamaged.
func (f *file) check(content []byte) error {
	s := &f.state
	if s.Applied == 0 {
		if s.Term|s.Config.Index != 0 || len(s.Config.Voters)+len(s.Config.Learners)+len(content) > 0 {
			return fmt.Errorf("%w: it has something, at entry 0", ErrDamaged)
		}
		return nil
	}
	if s.Term == 0 || s.Config.Index > s.Applied {
		return fmt.Errorf("%w: it is at entry %d of term %d, with the configuration of entry %d", ErrDamaged, s.Applied, s.Term, s.Config.Index)
	}
	if err := s.Config.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// parseMembers reads so many members, and returns what is behind them. ErrDamaged.
func parseMembers(b []byte, n int) (list []consensus.Member, rest []byte, err error) {
	for i := range n {
		if len(b) < memberHead || len(b)-memberHead < int(b[memberHead-1]) {
			return nil, nil, fmt.Errorf("%w: member %d of %d is not there", ErrDamaged, i, n)
		}
		size := int(b[memberHead-1])
		list = append(list, consensus.Member{ID: consensus.ReplicaID(binary.LittleEndian.Uint64(b)), Node: string(b[memberHead : memberHead+size])})
		b = b[memberHead+size:]
	}
	return list, b, nil
}

// same says whether two states are one.
func same(a, b *consensus.State) bool {
	return a.Applied == b.Applied && a.Term == b.Term && a.Config.Index == b.Config.Index &&
		slices.Equal(a.Config.Voters, b.Config.Voters) && slices.Equal(a.Config.Learners, b.Config.Learners)
}
