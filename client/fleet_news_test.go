package client_test

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A map with another number of shards than the server has is none.
func TestFleetLearnsShards(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	nodes[0].Shards = clienttest.ClusterShards / 2
	cfg := configFake(nodes[0].Server)
	cfg.Servers = []string{nodes[0].Addr}
	_, err := client.Dial(inHeap(t.Context()), cfg)
	if err == nil || !errors.Is(err, client.ErrProtocol) && !errors.Is(err, client.ErrUnavailable) {
		t.Error(err)
	}
}

// What does not parse ends the session, and is not believed.
func TestFleetHostileNews(t *testing.T) {
	for name, text := range map[string][]byte{
		"nothing": {}, "rubbish": []byte("rubbish"), "a view of nobody": cluster.AppendView(nil, &cluster.View{Version: 1}),
		"a huge view": make([]byte, session.MaxNews+1),
	} {
		nodes := clienttest.Cluster(t, 1, true)
		nodes[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypeDocument {
				return nodes[0].Answer(h, msg)
			}
			out := wire.AppendDocumentReply(nil, h.ID, wire.DocumentReply{Total: uint32(len(text)), Serial: 1, Data: text[:min(len(text), 1000)]})
			wire.SetCredits(out, 1)
			return out, true
		}
		cfg := configFake(nodes[0].Server)
		cfg.Servers = []string{nodes[0].Addr}
		if c, err := client.Dial(inHeap(t.Context()), cfg); !errors.Is(err, client.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				c.Close()
			}
		}
	}
}
