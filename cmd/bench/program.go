package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// The works in this file measure the program itself, as it is released: stripped, and
// in a process of its own.

// program builds it and gives its path. skipped is why it cannot be built here.
func program(ctx context.Context, t task) (path, skipped string) {
	compiler, err := exec.LookPath("go")
	if err != nil {
		return "", "go is not installed"
	}
	path = filepath.Join(t.Scratch, "settlewatch")
	cmd := exec.CommandContext(ctx, compiler, "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/settlewatch/settlewatch/cmd/settlewatch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Sprintf("the program cannot be built from here: %.200s", out)
	}
	return path, ""
}

// binary is the size of the program.
func binary(ctx context.Context, t task) (sample, error) {
	path, skipped := program(ctx, t)
	if skipped != "" {
		return sample{Skipped: skipped}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return sample{}, err
	}
	return sample{Bytes: info.Size()}, nil
}

// spawn times starts of the program up to its first answer to tools/list.
func spawn(ctx context.Context, t task) (sample, error) {
	path, skipped := program(ctx, t)
	if skipped != "" {
		return sample{Skipped: skipped}, nil
	}
	var took []float64
	for range 22 {
		begin := time.Now()
		s, err := startServer(ctx, path, t)
		if err != nil {
			return sample{}, err
		}
		err = s.call(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		took = append(took, time.Since(begin).Seconds())
		if err = errors.Join(err, s.stop()); err != nil {
			return sample{}, err
		}
	}
	took = took[2:] // the first ones read the program from disk
	slices.Sort(took)
	return sample{P50: quantile(took, 0.5), P99: quantile(took, 0.99)}, nil
}

// resident is the memory of the program a while after it has answered a question.
func resident(ctx context.Context, t task) (sample, error) {
	path, skipped := program(ctx, t)
	if skipped != "" {
		return sample{Skipped: skipped}, nil
	}
	s, err := startServer(ctx, path, t)
	if err != nil {
		return sample{}, err
	}
	err = s.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_operations","arguments":{}}}`)
	if err == nil {
		time.Sleep(time.Duration(t.Seconds * float64(time.Second)))
	}
	rss := memoryOf(s.cmd.Process.Pid, "VmRSS")
	return sample{RSS: rss}, errors.Join(err, s.stop())
}

// client talks to a server over its standard input and output.
type client struct {
	in      io.WriteCloser
	answers *bufio.Reader
}

func (c client) initialize() error {
	return c.call(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
}

// call sends a message and waits for its answer.
func (c client) call(message string) error {
	if _, err := io.WriteString(c.in, message+"\n"); err != nil {
		return err
	}
	answer, err := c.answers.ReadSlice('\n')
	if err == nil && !bytes.Contains(answer, []byte(`"result"`)) {
		err = fmt.Errorf("the server answers with %.200s", answer)
	}
	return err
}

// server is the program, serving on stdio.
type server struct {
	client
	cmd *exec.Cmd
}

// startServer starts the program over the root and index of the task, and says
// initialize.
func startServer(ctx context.Context, path string, t task) (*server, error) {
	cmd := exec.CommandContext(ctx, path, "serve", "--dir", t.Root, "--guard-dir", t.Guard, "--toolset", "trace")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &server{client{in, bufio.NewReaderSize(out, 1<<20)}, cmd}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.initialize(); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) stop() error {
	return errors.Join(s.in.Close(), s.cmd.Wait())
}
