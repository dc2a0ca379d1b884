package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const help = `
  1 read            RDMA READ:  fetch the peer's window; the peer's program does not notice
  2 write TEXT      RDMA WRITE: put TEXT into the peer's window; nor does it notice that
  3 send TEXT       SEND:       a message, into a receive that the peer has posted
  4 receive         RECEIVE:    wait for the next message
  5 set TEXT        change our own window, for the peer to read
  6 show            show our own window and the objects behind it
  7 meet            wait until the other process says meet too (over TCP)
  8 quit
`

// A menu reads one choice per line: a number or its word, then the text.
type menu struct {
	ep      endpoint
	conn    net.Conn
	timeout time.Duration
	in      io.Reader
	out     io.Writer
}

// errQuit ends the loop.
var errQuit = errors.New("quit")

func (m *menu) loop(ctx context.Context) error {
	fmt.Fprint(m.out, help)
	lines := make(chan string)
	var readErr error // written before lines is closed
	go func() {       // a read of the terminal cannot be interrupted: leave it alone
		defer close(lines)
		scanner := bufio.NewScanner(m.in) // lines of 64 KiB at most, then an error
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		readErr = scanner.Err()
	}()
	for {
		fmt.Fprint(m.out, "> ")
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !more {
			return readErr // nil at the end of the input: that is quit too
		}
		word, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		err := m.choose(ctx, word, text)
		if errors.Is(err, errQuit) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
}

func (m *menu) choose(ctx context.Context, word, text string) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	if len(text) > windowSize {
		fmt.Fprintf(m.out, "the text has %d bytes, at most %d fit\n", len(text), windowSize)
		return nil
	}
	switch word {
	case "":
	case "1", "read":
		b, err := m.ep.read(ctx, windowSize)
		if err != nil {
			return err
		}
		fmt.Fprintf(m.out, "read %q\n", show(b))
	case "2", "write":
		if err := m.ep.write(ctx, padded(text)); err != nil {
			return err
		}
		fmt.Fprintf(m.out, "written %q; the other process sees it when it looks (show)\n", text)
	case "3", "send":
		if text == "" {
			text = "hello"
		}
		if err := m.ep.send(ctx, []byte(text)); err != nil {
			return err
		}
		fmt.Fprintf(m.out, "sent %q\n", text)
	case "4", "receive":
		b, err := m.ep.receive(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(m.out, "received %q\n", b)
	case "5", "set":
		// The card may be reading this memory right now, or writing to it: a
		// peer that reads meanwhile can see half of the old text and half of the
		// new one. Nothing in RDMA prevents that; a program must, as the store
		// does with a checksum in every item.
		copy(m.ep.window(), padded(text))
		fmt.Fprintf(m.out, "our window is now %q\n", text)
	case "6", "show":
		fmt.Fprintf(m.out, "%s\nour window: %q\n", m.ep.describe(), show(m.ep.window()))
	case "7", "meet":
		if err := meet(m.conn, m.timeout); err != nil {
			return err
		}
		fmt.Fprintln(m.out, "met")
	case "8", "quit", "q":
		return errQuit
	default:
		fmt.Fprintf(m.out, "there is no %q\n%s", word, help)
	}
	return nil
}

// padded is text and zeros up to the window's size, so that nothing of a longer
// text stays behind it.
func padded(text string) []byte {
	b := make([]byte, windowSize)
	copy(b, text)
	return b
}

// show is what stands in front of the first zero.
func show(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
