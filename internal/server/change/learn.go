package change

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The question that a node asks each other one before its replicas take part (groups.Env.Learn), because what it has in force may be older than what burnt its groups:
//
//	┌kind┬ 0 ┬map version┐
//	└2   ┴7  ┴8          ┘    map version: that the asker has in force; 0: none
//
// The answer is the map of the other node (cluster.AppendMap), if that is a later one, and else nothing. The map counts by its version, as one of the seat does.

const (
	kindMap = wire.QuestionMap
	mapHead = 16
)

// appendAsk appends the question.
func appendAsk(dst []byte, version uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, kindMap, 0, 0, 0, 0, 0, 0, 0), version)
}

// parseAsk reads it. ErrMalformed.
func parseAsk(b []byte) (version uint64, err error) {
	if len(b) != mapHead || b[0] != kindMap {
		return 0, fmt.Errorf("%w: a question of %d bytes, of a kind that this node does not know", cluster.ErrMalformed, len(b))
	}
	for _, x := range b[1:8] {
		if x != 0 {
			return 0, fmt.Errorf("%w: a reserved byte of a question is %#x", cluster.ErrMalformed, x)
		}
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// tell answers who asks for a later map. cluster.ErrMalformed.
func (c *Changer) tell(question []byte) ([]byte, error) {
	version, err := parseAsk(question)
	if err != nil {
		return nil, err
	}
	if now := c.now.Load(); now != nil && now.m.Version > version {
		return cluster.AppendMap(nil, now.m), nil
	}
	return nil, nil
}

// Learn asks another node for a later map than the one in force here, and puts that in force; see groups.Env.Learn. That it has none is no error.
//
// Errors: those of Env.Ask and of Env.Follow, cluster.ErrMalformed.
func (c *Changer) Learn(ctx context.Context, node string) error {
	if c == nil {
		return nil
	}
	version := uint64(0)
	if now := c.now.Load(); now != nil {
		version = now.m.Version
	}
	answer, err := c.env.Ask(ctx, node, appendAsk(nil, version))
	if err != nil || len(answer) == 0 {
		return err
	}
	m, err := cluster.ParseMap(answer)
	if err != nil {
		return err
	}
	if now := c.now.Load(); now != nil && now.m.Version >= m.Version && !now.m.Parts(m.Version, m.Life()) {
		return nil // another node has told of it meanwhile
	}
	err = c.env.Follow(ctx, m)
	if errors.Is(err, cluster.ErrTwoMetas) {
		met(c, node, m.Life())
	}
	return err
}
