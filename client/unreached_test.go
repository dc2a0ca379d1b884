package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestUnreached: the error of a server that is not there holds the reason of the
// fabric that came farthest, once for each address.
func TestUnreached(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	noRoute := &clienttest.RoutedRig{Rig: clienttest.NewRig("a"), Way: func(string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: no card", rdma.ErrNoDevice)
	}}
	// The fabric that asks for a connection stands in front, behind and in between.
	for _, fabrics := range [][]rdma.Fabric{{noRoute, iwarp.New(iwarp.Options{})}, {iwarp.New(iwarp.Options{}), noRoute}, {noRoute, iwarp.New(iwarp.Options{}), noRoute}} {
		// A slow machine may cut off even the first attempt, which then says less: it gets more time.
		for limit := 500 * time.Millisecond; limit < 10*time.Second; limit *= 4 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err = client.Dial(inHeap(ctx), client.Config{Servers: []string{addr, "127.0.0.1:1"}, Fabrics: fabrics, Timeout: limit})
			cancel()
			if errors.As(err, new(*client.DialError)) { // it made more than one attempt
				break
			}
		}
		list := client.UnreachedServers(err)
		if !errors.Is(err, client.ErrUnavailable) || len(list) != 2 {
			t.Fatalf("%v: %d addresses", err, len(list))
		}
		if u := list[0]; u.Server != addr || u.Fabric != "iwarp" || !u.Asked || u.Answered || !strings.Contains(u.Err.Error(), "connection refused") {
			t.Errorf("%+v", u)
		}
		if strings.Contains(err.Error(), "no card") || strings.Contains(err.Error(), "\n") {
			t.Errorf("the text has the other fabrics' reasons, or more lines than one: %v", err)
		}
	}
	// No fabric reaches anything: the last one's reason.
	_, err = client.Dial(inHeap(t.Context()), client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{noRoute}, Timeout: 500 * time.Millisecond})
	if list := client.UnreachedServers(err); len(list) != 1 || list[0].Asked || !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("%v", err)
	}
}

// TestUnreachedLater: a call that waits for a lost server in vain has the reason of
// the last attempt, and did not fail for it.
func TestUnreachedLater(t *testing.T) {
	err := &client.Error{Op: "get", Node: "n2", Err: fmt.Errorf("%w: %w%w", client.ErrUnavailable, client.ErrTimeout,
		base.LastAttempt{Err: base.Because(client.ErrAuth, base.FabricErrors{&client.Unreached{Server: "a:1", Err: client.ErrAuth, Answered: true}})})}
	if list := client.UnreachedServers(err); len(list) != 1 || list[0].Server != "a:1" {
		t.Errorf("%v", list)
	}
	if errors.Is(err, client.ErrAuth) {
		t.Error("it failed for want of time")
	}
	if !strings.HasSuffix(err.Error(), "(last attempt: "+client.ErrAuth.Error()+": a:1: "+client.ErrAuth.Error()+")") {
		t.Error(err)
	}
	if client.UnreachedServers(client.ErrNotFound) != nil || client.UnreachedServers(nil) != nil {
		t.Error("nothing was unreached")
	}
	if got := fmt.Errorf("%w%w", client.ErrTimeout, base.LastAttempt{}).Error(); got != client.ErrTimeout.Error() {
		t.Errorf("%q", got)
	}
}
