package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// reload measures how long a lab of 10,000 hosts takes from the request until it is applied, under DNS queries
// all the time, and how many of these queries stay unanswered.
func reload(ctx context.Context, b *bench) error {
	c, err := b.bootlab(10000)
	if err != nil {
		return err
	}
	running, err := c.start(ctx)
	defer stop(running)
	if err != nil {
		return err
	}
	for _, p := range c.ports {
		if err := until(ctx, 20*time.Second, p.answers); err != nil {
			return fmt.Errorf("%s %s: %w", p.network, p.addr, err)
		}
	}
	asking, done := context.WithCancel(ctx)
	defer done()
	var asked, lost atomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- ask(asking, &asked, &lost) }()
	took, err := b.reloads(ctx, filepath.Join(b.dir, "lab10000", "lab.yaml"))
	if err != nil {
		return err
	}
	done()
	if err := <-ended; err != nil {
		return err
	}
	fmt.Printf("\n| reload of 10,000 hosts | |\n|---|---|\n| read, compiled and flipped, ms | %s |\n| questions asked meanwhile | %d |\n| without an answer | %d |\n",
		took, asked.Load(), lost.Load())
	return nil
}

// reloads asks the daemon to reload and returns what each took by its own account.
func (b *bench) reloads(ctx context.Context, lab string) (sample, error) {
	var took sample
	for range b.rounds {
		if out, err := exec.CommandContext(ctx, b.binary, "reload", "--lab", lab).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("bootlab reload: %w: %s", err, out)
		}
		out, err := exec.CommandContext(ctx, b.binary, "status", "--json", "--lab", lab).Output()
		if err != nil {
			return nil, fmt.Errorf("bootlab status: %w", err)
		}
		var status struct {
			Reload struct {
				Dur time.Duration `json:"dur"`
			} `json:"reload"`
		}
		if err := json.Unmarshal(out, &status); err != nil {
			return nil, err
		}
		took = append(took, status.Reload.Dur.Seconds()*1000)
		time.Sleep(300 * time.Millisecond)
	}
	return took, nil
}

// pace is between two questions: a lab of 10,000 machines that boot does not ask more.
const pace = 200 * time.Microsecond

// ask asks for a name again and again until ctx ends; a question without an answer within a second is lost.
func ask(ctx context.Context, asked, lost *atomic.Int64) error {
	c, err := net.Dial("udp", "10.0.0.1:53")
	if err != nil {
		return err
	}
	defer c.Close()
	question := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06host-1\x04test\x00\x00\x01\x00\x01")
	answer := make([]byte, 512)
	next := time.NewTicker(pace)
	defer next.Stop()
	for ctx.Err() == nil {
		<-next.C
		if _, err := c.Write(question); err != nil {
			return err
		}
		asked.Add(1)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(answer); err != nil {
			lost.Add(1)
		}
	}
	return nil
}
