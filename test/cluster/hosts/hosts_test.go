package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

var cannot error // why there are no namespaces

func TestMain(m *testing.M) {
	cannot = Enter()
	os.Exit(m.Run())
}

const patience = 30 * time.Second

// nets runs a test on each kind of network that is available here.
func nets(t *testing.T, f func(t *testing.T, n Net)) {
	for _, kind := range []struct {
		name string
		make func(...string) (Net, error)
	}{{"namespaces", Namespaces}, {"loopback", Loopback}} {
		t.Run(kind.name, func(t *testing.T) {
			if kind.name == "namespaces" && cannot != nil {
				t.Skip(cannot)
			}
			n, err := kind.make("a", "b", "c")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			}()
			f(t, n)
		})
	}
}

// echo answers what it is sent, on a host, by a process there.
func echo(t *testing.T, h Host) (addr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, feed := io.Pipe()
	p, err := h.On().Start(node.Command{
		Path: self, Args: []string{"-test.run", "^TestEchoProcess$", "-test.v"}, Env: []string{"HOSTS_ECHO=" + h.IP()},
		Stdout: feed, Stderr: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_, _ = p.Wait()
		feed.Close()
		close(done)
	}()
	t.Cleanup(func() {
		_ = p.Signal(9)
		<-done
	})
	var seen []byte
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		seen = append(seen, buf[:n]...)
		if _, rest, ok := strings.Cut(string(seen), "listening at "); ok && strings.Contains(rest, "\n") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return rest[:strings.Index(rest, "\n")]
		}
		if err != nil {
			t.Fatalf("%v: %s", err, seen)
		}
	}
}

// TestEchoProcess is the process of echo.
func TestEchoProcess(t *testing.T) {
	ip := os.Getenv("HOSTS_ECHO")
	if ip == "" {
		t.Skip("is started by the other tests")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("listening at %v\n", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// ask sends a word and waits for it to come back.
func ask(c net.Conn, word string, limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	buf := make([]byte, len(word))
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != word {
		return fmt.Errorf("%q came back", buf)
	}
	return nil
}

func dial(t *testing.T, h Host, addr string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := h.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// silent is how long something must not come.
const silent = 300 * time.Millisecond

func TestCut(t *testing.T) {
	nets(t, func(t *testing.T, n Net) {
		a, c := n.Host("a"), n.Host("c")
		addr := echo(t, n.Host("b"))
		fromA, fromC := dial(t, a, addr), dial(t, c, addr)
		for _, conn := range []net.Conn{fromA, fromC} {
			if err := ask(conn, "hello", patience); err != nil {
				t.Fatal(err)
			}
		}
		for _, cut := range []func() error{
			func() error { return n.Cut("a", "b") },
			func() error { return n.CutOneWay("a", "b") },
			func() error { return n.CutOneWay("b", "a") },
		} {
			if err := cut(); err != nil {
				t.Fatal(err)
			}
			if err := ask(fromA, "x", silent); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("over the cut: %v", err)
			}
			if err := ask(fromC, "hello", patience); err != nil {
				t.Errorf("over another link: %v", err)
			}
			if err := n.Heal(); err != nil {
				t.Fatal(err)
			}
			// What was said during the cut comes first: TCP sends it again.
			if err := fromA.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(fromA, make([]byte, 1)); err != nil {
				t.Fatalf("after it was healed: %v", err)
			}
		}
		if err := n.Cut("a", "nobody"); err == nil {
			t.Error("a link to nobody was cut")
		}
	})
}

// TestNewConnectionOverCut: a connection over a cut is not made.
func TestNewConnectionOverCut(t *testing.T) {
	nets(t, func(t *testing.T, n Net) {
		addr := echo(t, n.Host("b"))
		if err := n.CutOneWay("b", "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), silent)
		defer cancel()
		c, err := n.Host("a").Dial(ctx, "tcp", addr)
		if err == nil {
			err = ask(c, "hello", silent) // a proxy takes the connection, and no more
			c.Close()
		}
		if err == nil {
			t.Error("somebody answered")
		}
		if err := n.Heal(); err != nil {
			t.Fatal(err)
		}
		if err := ask(dial(t, n.Host("a"), addr), "hello", patience); err != nil {
			t.Error(err)
		}
	})
}

// TestPortsAndDelay: some ports alone are cut, and what is slow comes all the same.
func TestPortsAndDelay(t *testing.T) {
	nets(t, func(t *testing.T, n Net) {
		one, two := echo(t, n.Host("b")), echo(t, n.Host("b"))
		_, text, _ := net.SplitHostPort(one)
		port, err := net.LookupPort("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		if n.Kind() == "loopback" {
			if err := errors.Join(n.Cut("a", "b", uint16(port)), n.Delay("a", "b", time.Second)); !errors.Is(err, ErrCannot) {
				t.Errorf("what the loopback interface cannot do: %v", err)
			}
			return
		}
		fromOne, fromTwo := dial(t, n.Host("a"), one), dial(t, n.Host("a"), two)
		if err := n.Cut("a", "b", uint16(port)); err != nil {
			t.Fatal(err)
		}
		if err := ask(fromOne, "x", silent); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the port that is cut: %v", err)
		}
		if err := ask(fromTwo, "hello", patience); err != nil {
			t.Errorf("the port that is not cut: %v", err)
		}
		if err := n.Heal(); err != nil {
			t.Fatal(err)
		}
		const delay = 40 * time.Millisecond
		if err := n.Delay("a", "b", delay); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := ask(fromTwo, "hello", patience); err != nil || time.Since(start) < 2*delay {
			t.Errorf("over a slow link: %v after %v", err, time.Since(start))
		}
	})
}

// TestSeparate: in namespaces a host has its own addresses and no others, and a
// process on it sees the others from there.
func TestSeparate(t *testing.T) {
	if cannot != nil {
		t.Skip(cannot)
	}
	n, err := Namespaces("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := net.Listen("tcp", n.Host("a").IP()+":0"); err == nil {
		t.Error("the address of a host is an address of this machine")
	}
	var out bytes.Buffer
	p, err := n.Host("b").On().Start(node.Command{Path: "/bin/sh", Args: []string{"-c", "cat /proc/net/fib_trie"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); code != 0 || !strings.Contains(out.String(), n.Host("b").IP()) || strings.Contains(out.String(), n.Host("a").IP()+"\n") {
		t.Errorf("b has these routes (%d, %v):\n%s", code, err, &out)
	}
	for _, names := range [][]string{{"a", "a"}, {""}, make([]string, maxHosts+1)} {
		if _, err := Namespaces(names...); err == nil {
			t.Errorf("hosts %q were made", names)
		}
	}
}

// TestListen: what listens on a host is reached from there.
func TestListen(t *testing.T) {
	nets(t, func(t *testing.T, n Net) {
		ln, err := n.Host("a").Listen()
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Write([]byte("word"))
				_ = c.Close()
			}
		}()
		if n.Kind() == "namespaces" {
			if c, err := n.Host("b").Dial(t.Context(), "tcp", ln.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("another host reaches it")
			}
		}
		c, err := n.Host("a").Dial(t.Context(), "tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if b, err := io.ReadAll(c); err != nil || string(b) != "word" {
			t.Errorf("%q, %v", b, err)
		}
	})
}
