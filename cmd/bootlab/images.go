package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/content/images"
	"github.com/bootlab/bootlab/internal/lab"
)

func imagesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Show which images are present, missing or corrupt",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return listImages(cmd, o) },
	}
	cmd.AddCommand(pullCommand(o))
	return cmd
}

// imagesOf returns the lab and the files of its images: all, or those of these paths. What is wrong with single images is not the error.
func (o *options) imagesOf(ctx context.Context, source images.Source, paths []string) (*lab.Lab, []images.Item, []*images.ImageError, error) {
	l, err := o.load()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := keepImages(l, paths); err != nil {
		return nil, nil, nil, err
	}
	items, wrong := images.Items(ctx, l, source)
	if len(wrong) > 0 && ctx.Err() != nil {
		return nil, nil, nil, api.ErrInterrupted
	}
	return l, items, wrong, nil
}

// keepImages removes all images from l but those of these paths, if there are any.
func keepImages(l *lab.Lab, paths []string) error {
	for _, p := range paths {
		if !slices.ContainsFunc(l.Images, func(i *lab.Image) bool { return i.Path == p }) {
			return fmt.Errorf("no image %q in the lab file; bootlab images lists them", p)
		}
	}
	if len(paths) > 0 {
		l.Images = slices.DeleteFunc(l.Images, func(i *lab.Image) bool { return !slices.Contains(paths, i.Path) })
	}
	return nil
}

func listImages(cmd *cobra.Command, o *options) error {
	l, items, wrong, err := o.imagesOf(cmd.Context(), images.Saved, nil)
	if err != nil {
		return err
	}
	states := images.Check(cmd.Context(), l.Appliance.Files, items)
	var errs []error
	for _, e := range wrong { // the files of these are not known
		i := slices.IndexFunc(l.Images, func(i *lab.Image) bool { return i.Path == e.Image })
		s := images.Status{Item: images.Item{Path: e.Image, Image: e.Image, URLs: []string{l.Images[i].Stream}}, State: images.Missing}
		if !errors.Is(e, images.ErrNotPulled) {
			s.State, s.Err, errs = images.Wrong, e.Err.Error(), append(errs, e)
		}
		states = append(states, s)
	}
	if err := o.print(cmd, states, func() error { return imagesText(cmd, states) }); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func imagesText(cmd *cobra.Command, states []images.Status) error {
	if len(states) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "the lab file has no images")
		return err
	}
	var rows [][]string
	for _, s := range states {
		state := string(s.State)
		if s.Err != "" {
			state += ": " + s.Err
		}
		size := ""
		if s.Size > 0 {
			size = lab.Size(s.Size).Rounded()
		}
		rows = append(rows, []string{s.Path, state, size, strings.Join(s.URLs, " ")})
	}
	return list(cmd, "no images in the lab file", "PATH STATE SIZE FROM", rows)
}

// pullParallel is how many files are downloaded at a time, unless the command line says otherwise.
const pullParallel = 4

func pullCommand(o *options) *cobra.Command {
	parallel := pullParallel
	cmd := &cobra.Command{
		Use:   "pull [PATH...]",
		Short: "Download images, resume interrupted downloads, and verify checksums",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if parallel < 1 {
				return fmt.Errorf("--parallel %d is not valid: want 1 or more", parallel)
			}
			return pullImages(cmd, o, args, parallel)
		},
	}
	cmd.Flags().IntVar(&parallel, "parallel", parallel, "`number` of files to download at a time")
	return cmd
}

func pullImages(cmd *cobra.Command, o *options, paths []string, parallel int) error {
	client := images.NewClient()
	l, items, wrong, err := o.imagesOf(cmd.Context(), images.Fetch(client), paths)
	if err != nil {
		return err
	}
	if len(l.Images) == 0 && !o.json {
		return imagesText(cmd, nil)
	}
	p := &images.Progress{}
	show := newShow(cmd, o, items, p)
	pulled := images.Pull(cmd.Context(), images.Config{Dir: l.Appliance.Files, Parallel: parallel, Client: client}, items, p, show.result)
	show.end()
	var errs []error
	for _, e := range wrong {
		errs = append(errs, e)
	}
	return errors.Join(append(errs, pulled)...)
}

// A show prints the progress of a pull: bars on a terminal, a line now and then elsewhere, nothing but results as JSON.
type show struct {
	cmd   *cobra.Command
	o     *options
	items []images.Item
	p     *images.Progress
	width int // of the longest path
	stop  chan struct{}
	done  sync.WaitGroup

	mu     sync.Mutex
	screen *screen // of bars; nil: no terminal
	last   map[string]sighting
}

// A sighting is the progress of a file when it was last printed.
type sighting struct {
	at   time.Time
	have int64
}

func newShow(cmd *cobra.Command, o *options, items []images.Item, p *images.Progress) *show {
	s := &show{cmd: cmd, o: o, items: items, p: p, stop: make(chan struct{}), screen: newScreen(cmd.ErrOrStderr()), last: map[string]sighting{}}
	for _, i := range items {
		s.width = max(s.width, len(i.Path))
	}
	every := 200 * time.Millisecond
	if s.screen == nil {
		every = 10 * time.Second
	}
	if !o.json {
		s.done.Go(func() { s.run(every) })
	}
	return s
}

func (s *show) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			s.mu.Lock()
			s.draw(now)
			s.mu.Unlock()
		}
	}
}

func (s *show) end() {
	close(s.stop)
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// result prints the result of one file.
func (s *show) result(r images.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	_ = s.o.printLine(s.cmd, r, func() error {
		_, err := fmt.Fprintln(s.cmd.OutOrStdout(), resultText(r))
		return err
	})
}

func resultText(r images.Result) string {
	switch r.Outcome {
	case images.Failed:
		return fmt.Sprintf("%s: failed: %s", r.Path, r.Err)
	case images.Kept:
		return fmt.Sprintf("%s: present, %s", r.Path, lab.Size(r.Size).Rounded())
	}
	text := fmt.Sprintf("%s: downloaded %s in %s", r.Path, lab.Size(r.Fetched).Rounded(), r.Took.Round(100*time.Millisecond))
	if r.Outcome == images.Resumed {
		text += fmt.Sprintf(" to complete %s", lab.Size(r.Size).Rounded())
	}
	return text
}

// clear removes the bars from the screen.
func (s *show) clear() {
	if s.screen != nil {
		s.screen.clear()
	}
}

// draw writes a line for each file that is being downloaded.
func (s *show) draw(now time.Time) {
	var text strings.Builder
	for _, i := range s.items {
		t := s.p.Of(i.Path)
		have, total := t.Have.Load(), t.Total.Load()
		if err := t.Err(); err != nil && !t.Done.Load() {
			fmt.Fprintf(&text, "%s: retrying: %s\n", i.Path, lab.Printable(err.Error()))
			continue
		}
		if t.Done.Load() || have == 0 {
			continue
		}
		speed := s.speed(i.Path, now, have)
		if s.screen != nil {
			barLine(&text, s.width, i.Path, have, total, speed)
			continue
		}
		fmt.Fprintf(&text, "%s: %s, %s/s\n", i.Path, portion(have, total), lab.Size(speed).Rounded())
	}
	if s.screen != nil {
		s.screen.draw(text.String())
		return
	}
	fmt.Fprint(s.cmd.ErrOrStderr(), text.String())
}

// speed returns the bytes per second since the last call.
func (s *show) speed(path string, now time.Time, have int64) int64 {
	before, seen := s.last[path]
	s.last[path] = sighting{now, have}
	took := now.Sub(before.at).Seconds()
	if !seen || took <= 0 {
		return 0
	}
	return max(0, int64(float64(have-before.have)/took))
}

const barWidth = 24

func barLine(w io.Writer, width int, path string, have, total, speed int64) {
	bar := strings.Repeat("·", barWidth)
	if total > 0 {
		full := int(min(have, total) * barWidth / total)
		bar = strings.Repeat("█", full) + strings.Repeat("·", barWidth-full)
	}
	fmt.Fprintf(w, "%-*s %s %s %s/s\n", width, path, bar, portion(have, total), lab.Size(speed).Rounded())
}

func portion(have, total int64) string {
	if total <= 0 {
		return lab.Size(have).Rounded()
	}
	return fmt.Sprintf("%3d %% of %s", 100*min(have, total)/total, lab.Size(total).Rounded())
}
