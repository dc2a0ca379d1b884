package client_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Operations of the history: a register per key.
type regInput struct {
	key   int
	write bool
	value uint64 // 0: delete
}

var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(regInput).key
			by[k] = append(by[k], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range by {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		if in := input.(regInput); in.write {
			return true, in.value
		}
		return output.(uint64) == state.(uint64), state
	},
	DescribeOperation: func(input, output any) string {
		in := input.(regInput)
		if in.write {
			return fmt.Sprintf("key %d := %d", in.key, in.value)
		}
		return fmt.Sprintf("key %d -> %d", in.key, output)
	},
}

// selfChecking is a value of the given size that carries n throughout, so that
// a mixture of two is seen.
func selfChecking(n uint64, size int) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, n), size/8)
}

func checkValue(b []byte) (uint64, error) {
	n := binary.LittleEndian.Uint64(b)
	if !bytes.Equal(b, selfChecking(n, len(b))) {
		return 0, fmt.Errorf("a value of %d bytes is a mixture", len(b))
	}
	return n, nil
}

// Puts, deletes and gets of every kind by several clients, of values small and
// large at the same keys, form a linearizable history.
func TestLinearizable(t *testing.T) {
	n := node.Start(t, nil)
	const keys, clients, rounds = 6, 5, 250
	sizes := []int{8, 8, 104, 1000, 20_000, layout.ChunkSize, layout.ChunkSize + 8, 300_000}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	var wg sync.WaitGroup
	for id := range clients {
		c := dialNode(n, func(cfg *client.Config) {
			if id == 0 {
				cfg.CacheEntries = -1
			}
		})
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)))
			for i := range rounds {
				in := regInput{key: rng.IntN(keys)}
				key := fmt.Appendf(nil, "key-%d", in.key)
				var out uint64
				var err error
				call := time.Since(begin)
				switch rng.IntN(7) {
				case 0:
					in.write = true
					_, err = c.Delete(t.Context(), key)
				case 1: // what PutAsync has taken takes effect before Wait returns
					in.write, in.value = true, uint64(i*clients+id+1)
					var p *client.Pending
					if p, err = c.PutAsync(t.Context(), key, selfChecking(in.value, sizes[rng.IntN(len(sizes))])); err == nil {
						_, err = p.Wait()
					}
				case 2:
					in.write, in.value = true, uint64(i*clients+id+1)
					err = c.Put(t.Context(), key, selfChecking(in.value, sizes[rng.IntN(len(sizes))]))
				case 3:
					var part []byte
					if part, err = c.GetRange(t.Context(), key, 0, 8); err == nil {
						out, err = checkValue(part)
					}
				case 4:
					var rs []client.Result
					rs, err = c.MultiGet(t.Context(), [][]byte{key})
					if err == nil {
						if err = rs[0].Err; err == nil {
							out, err = checkValue(rs[0].Value)
						}
					}
				default:
					var v []byte
					if v, err = c.Get(t.Context(), key); err == nil {
						out, err = checkValue(v)
					}
				}
				ret := time.Since(begin)
				if err != nil && !errors.Is(err, client.ErrNotFound) {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: id, Input: in, Call: int64(call), Output: out, Return: int64(ret),
				})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if res := porcupine.CheckOperationsTimeout(registerModel, history, 30*time.Second); res != porcupine.Ok {
		t.Fatalf("seed %d: %d operations: %v", seed, len(history), res)
	}
}
