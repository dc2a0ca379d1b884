package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

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
	noRoute := &routedRig{newRig("a"), func(string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: no card", rdma.ErrNoDevice)
	}}
	// The fabric that asks for a connection stands in front, behind and in between.
	for _, fabrics := range [][]rdma.Fabric{{noRoute, iwarp.New(iwarp.Options{})}, {iwarp.New(iwarp.Options{}), noRoute}, {noRoute, iwarp.New(iwarp.Options{}), noRoute}} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err = Dial(ctx, Config{Servers: []string{addr, "127.0.0.1:1"}, Fabrics: fabrics, HeapMemory: true, Timeout: 500 * time.Millisecond})
		cancel()
		list := UnreachedServers(err)
		if !errors.Is(err, ErrUnavailable) || len(list) != 2 {
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
	_, err = Dial(t.Context(), Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{noRoute}, HeapMemory: true, Timeout: 500 * time.Millisecond})
	if list := UnreachedServers(err); len(list) != 1 || list[0].Asked || !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("%v", err)
	}
}

// TestUnreachedLater: a call that waits for a lost server in vain has the reason of
// the last attempt, and did not fail for it.
func TestUnreachedLater(t *testing.T) {
	err := &Error{Op: "get", Node: "n2", Err: fmt.Errorf("%w: %w%w", ErrUnavailable, ErrTimeout,
		lastAttempt{because(ErrAuth, fabricErrors{&Unreached{Server: "a:1", Err: ErrAuth, Answered: true}})})}
	if list := UnreachedServers(err); len(list) != 1 || list[0].Server != "a:1" {
		t.Errorf("%v", list)
	}
	if errors.Is(err, ErrAuth) {
		t.Error("it failed for want of time")
	}
	if !strings.HasSuffix(err.Error(), "(last attempt: "+ErrAuth.Error()+": a:1: "+ErrAuth.Error()+")") {
		t.Error(err)
	}
	if UnreachedServers(ErrNotFound) != nil || UnreachedServers(nil) != nil {
		t.Error("nothing was unreached")
	}
	if got := fmt.Errorf("%w%w", ErrTimeout, lastAttempt{}).Error(); got != ErrTimeout.Error() {
		t.Errorf("%q", got)
	}
}
