package perflab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// column finds the names of perftest's columns. They are separated by blanks
// and have blanks in them, so each is known by how it ends.
var column = regexp.MustCompile(`#\w+|[\w.% ]*[\w%]\[[^\]]*\]`)

// errNoTable: there is no table of results in the output.
var errNoTable = errors.New("perflab: no table in perftest's output")

// parsePerftest reads the last row of the last table in perftest's output: a
// line that begins with "#bytes" and names columns, and below it rows of
// numbers. What else is printed (warnings, addresses) is passed over.
func parsePerftest(out []byte) (map[string]float64, error) {
	var names []string
	var row map[string]float64
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "#bytes") {
			names = names[:0]
			for _, n := range column.FindAllString(line, -1) {
				names = append(names, strings.TrimSpace(n))
			}
			continue
		}
		fields := strings.Fields(line)
		if len(names) == 0 || len(fields) != len(names) {
			continue
		}
		values := make(map[string]float64)
		for i, f := range fields {
			// A deviation may be the root of a negative number: "-nan".
			v, err := strconv.ParseFloat(strings.TrimPrefix(f, "-"), 64)
			if err != nil {
				break
			}
			values[names[i]] = v
		}
		if len(values) == len(names) {
			row = values
		}
	}
	if row == nil {
		return nil, errNoTable
	}
	return row, nil
}

// perftestTime bounds one run of a pair.
const perftestTime = 3 * time.Minute

// A perftester runs pairs of perftest's programs on one device.
type perftester struct {
	device string
	addr   string // of the server
	port   int    // of the next pair: each has its own
}

// run is table of which one column is wanted.
func (p *perftester) run(ctx context.Context, want, program string, args ...string) (float64, error) {
	row, err := p.table(ctx, program, args...)
	if err != nil {
		return 0, err
	}
	v, ok := row[want]
	if !ok {
		return 0, fmt.Errorf("%s: no column %q in %v", program, want, row)
	}
	return v, nil
}

// table runs a program as server and as client, and returns the last row of the
// client's table, by column.
func (p *perftester) table(ctx context.Context, program string, args ...string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, perftestTime)
	defer cancel()
	p.port++
	args = append([]string{"-d", p.device, "-F", "-p", strconv.Itoa(p.port)}, args...)
	var said bytes.Buffer
	server := exec.CommandContext(ctx, program, args...)
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() {
		_ = server.Process.Kill() // gone already, if all went well
		<-ended
	}()
	if err := listening(ctx, p.port, ended); err != nil {
		return nil, fmt.Errorf("%s: the server: %w\n%s", program, err, said.Bytes())
	}
	out, err := exec.CommandContext(ctx, program, append(args, p.addr)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	row, err := parsePerftest(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return row, nil
}

// listening waits until there is a listener at a TCP port. It does not connect:
// perftest's server takes the first connection for its client.
func listening(ctx context.Context, port int, ended chan error) error {
	suffix := fmt.Sprintf(":%04X", port)
	for {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			data, _ := os.ReadFile(file) // there may be no IPv6
			for line := range strings.Lines(string(data)) {
				f := strings.Fields(line)
				if len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == "0A" { // TCP_LISTEN
					return nil
				}
			}
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %v", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
