package qmp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

const greeting = `{"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}`

// qemu plays the other side: a greeting, then one answer, of any number of
// lines, for each command.
func qemu(t *testing.T, hello string, answers ...string) (net.Conn, <-chan []string) {
	t.Helper()
	ours, theirs := net.Pipe()
	heard := make(chan []string, 1)
	go func() {
		defer theirs.Close()
		var lines []string
		defer func() { heard <- lines }()
		if _, err := fmt.Fprintln(theirs, hello); err != nil {
			return
		}
		r := bufio.NewScanner(theirs)
		for _, a := range answers {
			if !r.Scan() {
				return
			}
			lines = append(lines, r.Text())
			if _, err := fmt.Fprintln(theirs, a); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { ours.Close() })
	return ours, heard
}

func TestCommands(t *testing.T) {
	conn, heard := qemu(t, greeting,
		`{"return": {}}`,
		`{"event": "STOP", "timestamp": {}}`+"\n"+`{"return": {}}`,
		`{"error": {"class": "DeviceNotFound", "desc": "Device 'nic7' not found"}}`,
		`{"return": {}}`,
		`{"return": "CPU#0\r\nRIP=1"}`,
		`{"return": {}}`)
	m, err := New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Do("stop", nil); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := m.Do("set_link", map[string]any{"name": "nic7", "up": false}); err == nil || !strings.Contains(err.Error(), "nic7' not found") {
		t.Errorf("set_link: %v", err)
	}
	if err := m.Do("cont", nil); err != nil {
		t.Errorf("cont, after an error: %v", err)
	}
	if text, err := m.Human("info registers -a"); err != nil || text != "CPU#0\r\nRIP=1" {
		t.Errorf("for people: %q, %v", text, err)
	}
	if text, err := m.Human("help"); err == nil {
		t.Errorf("an answer that is no text: %q", text)
	}
	want := []string{`{"execute":"qmp_capabilities"}`, `{"execute":"stop"}`, `{"arguments":{"name":"nic7","up":false},"execute":"set_link"}`, `{"execute":"cont"}`,
		`{"arguments":{"command-line":"info registers -a"},"execute":"human-monitor-command"}`, `{"arguments":{"command-line":"help"},"execute":"human-monitor-command"}`}
	if got := <-heard; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("QEMU heard %q", got)
	}
	if err := m.Do("stop", nil); err == nil {
		t.Error("a command to a QEMU that has gone succeeds")
	}
}

func TestBadAnswers(t *testing.T) {
	for name, hello := range map[string]string{"not JSON": "hello", "no greeting": "{}", "too long": strings.Repeat("x", maxLine+1)} {
		conn, _ := qemu(t, hello, `{"return": {}}`)
		if _, err := New(conn); err == nil {
			t.Errorf("%s: no error", name)
		}
		conn.Close()
	}
	conn, _ := qemu(t, greeting, `{"return": {}}`, `nonsense`)
	m, err := New(conn)
	if err != nil {
		t.Fatal(err)
	}
	first := m.Do("stop", nil)
	if first == nil {
		t.Fatal("nonsense is an answer")
	}
	// What comes then may be the answer to anything.
	if err := m.Do("cont", nil); err == nil || !errors.Is(err, errors.Unwrap(first)) && err.Error() == "" {
		t.Errorf("after nonsense: %v", err)
	}
	conn, _ = qemu(t, greeting)
	if _, err := New(conn); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a QEMU that ends: %v", err)
	}
}
