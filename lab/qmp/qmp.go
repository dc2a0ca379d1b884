// Package qmp speaks QEMU's machine protocol as far as the lab needs it: one
// command at a time, answers in order, events dropped (docs/interop/qmp-spec.txt
// of QEMU).
package qmp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Timeout bounds every command.
const Timeout = 20 * time.Second

// maxLine bounds one message of QEMU.
const maxLine = 1 << 20

// A Monitor controls one QEMU. Its methods may be called at the same time.
type Monitor struct {
	conn net.Conn

	mu    sync.Mutex // held during a command
	lines *bufio.Scanner
	err   error // sticky: after a failed read answers and commands would not match
}

// New greets the QEMU at the other end and owns the connection.
func New(conn net.Conn) (*Monitor, error) {
	m := &Monitor{conn: conn, lines: bufio.NewScanner(conn)}
	m.lines.Buffer(nil, maxLine)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, err
	}
	var greeting struct{ QMP *struct{} }
	if err := m.nextLocked(&greeting); err != nil {
		return nil, err
	}
	if greeting.QMP == nil {
		return nil, errors.New("qmp: no greeting")
	}
	_, err := m.doLocked("qmp_capabilities", nil)
	return m, err
}

// Close ends the connection; QEMU goes on.
func (m *Monitor) Close() error { return m.conn.Close() }

// Do runs a command and waits until QEMU has done it.
func (m *Monitor) Do(command string, args map[string]any) error {
	_, err := m.do(command, args)
	return err
}

// Human runs a command of QEMU's monitor for people, as "info registers -a",
// and returns what it prints.
func (m *Monitor) Human(line string) (string, error) {
	answer, err := m.do("human-monitor-command", map[string]any{"command-line": line})
	if err != nil {
		return "", err
	}
	var text string
	if err := json.Unmarshal(answer, &text); err != nil {
		return "", fmt.Errorf("qmp: %s: %w", line, err)
	}
	return text, nil
}

func (m *Monitor) do(command string, args map[string]any) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	if err := m.conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, err
	}
	return m.doLocked(command, args)
}

func (m *Monitor) doLocked(command string, args map[string]any) (json.RawMessage, error) {
	msg := map[string]any{"execute": command}
	if args != nil {
		msg["arguments"] = args
	}
	b, err := json.Marshal(msg)
	if err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(b, '\n')); err != nil {
		m.err = fmt.Errorf("qmp: %s: %w", command, err)
		return nil, m.err
	}
	for {
		var answer struct {
			Event  string
			Return *json.RawMessage
			Error  *struct{ Class, Desc string }
		}
		if err := m.nextLocked(&answer); err != nil {
			return nil, fmt.Errorf("qmp: %s: %w", command, err)
		}
		switch {
		case answer.Event != "":
		case answer.Error != nil:
			return nil, fmt.Errorf("qmp: %s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return *answer.Return, nil
		}
	}
}

func (m *Monitor) nextLocked(v any) error {
	if m.err == nil && !m.lines.Scan() {
		if m.err = m.lines.Err(); m.err == nil {
			m.err = io.ErrUnexpectedEOF
		}
	}
	if m.err == nil {
		if err := json.Unmarshal(m.lines.Bytes(), v); err != nil {
			m.err = fmt.Errorf("qmp: %w", err)
		}
	}
	return m.err
}
