package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestEndsWhileReloading: a reload that takes long keeps no signal, and no failure,
// from ending the node, and ends with it; reloads never overlap, and none is lost.
func TestEndsWhileReloading(t *testing.T) {
	for _, byFailure := range []bool{false, true} {
		signals, reloads, failed := make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan struct{})
		a := &app{signals: signals}
		begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		reload := func(ctx context.Context) {
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
				close(ended)
			}
		}
		out := make(chan os.Signal, 1)
		go func() { out <- a.attend(t.Context(), failed, reloads, reload) }()
		reloads <- syscall.SIGHUP
		<-begun
		reloads <- syscall.SIGHUP // waits for the first
		select {
		case <-begun:
			t.Fatal("two reloads at once")
		case <-time.After(20 * time.Millisecond):
		}
		goOn <- struct{}{}
		<-begun
		if byFailure {
			close(failed)
		} else {
			signals <- syscall.SIGTERM
		}
		select {
		case sig := <-out:
			if (sig == nil) != byFailure {
				t.Errorf("ended by %v", sig)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the end waits for the reload")
		}
		<-ended
	}
}
