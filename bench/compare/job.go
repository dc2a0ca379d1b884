package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// workerArg makes this program a worker.
const workerArg = "worker"

// A job is what a worker is to do, as JSON on its standard input. One of the
// pointers is set.
type job struct {
	Load     *jobs.Load        `json:",omitempty"`
	Fill     *jobs.Load        `json:",omitempty"`
	PingPong *clients.PingPong `json:",omitempty"`
	Stream   *clients.Stream   `json:",omitempty"`
	// Answer makes it the other end of a ping-pong or a stream: it prints its
	// address, serves one connection and ends.
	Answer  bool
	Appends *appendsJob `json:",omitempty"`
	Over    *overJob    `json:",omitempty"` // blocks written over those of a file
	Copy    *copyJob    `json:",omitempty"`

	Dir string // for measurements that write to disk; the address of an answering end
	// pins is where the processes run.
	pins pins
	// program is another worker that does the job; "": this program.
	program string
}

type appendsJob struct {
	Record   int
	Duration time.Duration
}

type overJob struct {
	Block    int
	Each     bool // each is durable when its write returns
	Duration time.Duration
}

type copyJob struct {
	Size     int
	Duration time.Duration
}

// pins are the processors of the two ends; the zero value is any.
type pins struct {
	on             bool
	server, client int
}

func (p pins) clientCore() int {
	if p.on {
		return p.client
	}
	return -1
}

func (p pins) serverCore() int {
	if p.on {
		return p.server
	}
	return -1
}

func (p pins) String() string {
	switch {
	case !p.on:
		return "any"
	case p.server == p.client:
		return "one core"
	}
	return "two cores"
}

// employ runs a worker and returns what it measured. The worker dies with this
// process.
func employ(ctx context.Context, j job) (s report.Sample, err error) {
	cmd, err := worker(ctx, j)
	if err != nil {
		return s, err
	}
	var said, out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = servers.StartOn(cmd, j.pins.clientCore()); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return s, fmt.Errorf("%w: %s", worded(ctx, err), lastLines(said.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("a worker said %.200q: %w", out.Bytes(), err)
	}
	return s, nil
}

// worker is the command of a worker, with the job on its standard input.
func worker(ctx context.Context, j job) (*exec.Cmd, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	path := j.program
	if path == "" {
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, path, workerArg)
	cmd.Stdin = bytes.NewReader(text)
	cmd.SysProcAttr = servers.Attached()
	cmd.WaitDelay = 2 * time.Second
	return cmd, nil
}

// worded says why a worker ended: by itself, or for lack of time.
func worded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("took too long: %w", context.Cause(ctx))
	}
	return err
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// facing runs an answering worker and one that asks it.
func facing(ctx context.Context, j job) (s report.Sample, err error) {
	answer := j
	answer.Answer = true
	cmd, err := worker(ctx, answer)
	if err != nil {
		return s, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := servers.StartOn(cmd, j.pins.serverCore()); err != nil {
		return s, err
	}
	defer func() {
		_ = cmd.Process.Kill() // the worker ends with its connection, except after a failure
		_ = cmd.Wait()
	}()
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil && !errors.Is(err, io.EOF) || n == 0 {
		return s, fmt.Errorf("the answering end: %v: %s", err, lastLines(said.String()))
	}
	j.Dir = strings.TrimSpace(string(line[:n]))
	return employ(ctx, j)
}
