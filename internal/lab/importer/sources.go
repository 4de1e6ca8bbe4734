package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
)

// Limits of what is read. A configuration that includes itself ends there.
const (
	maxFile     = 16 << 20
	maxFiles    = 4096
	maxIncludes = 16
)

// sources reads files, and those that they name.
type sources struct {
	root   string
	stdin  io.Reader // nil: there is none, or it is read
	count  int
	memory map[string][]byte // files of tests, in place of the file system
}

// read returns a file that the command line names, or one that another names.
func (s *sources) read(name string) ([]byte, error) {
	if s.count++; s.count > maxFiles {
		return nil, fmt.Errorf("read %s: more than %d files", name, maxFiles)
	}
	if s.memory != nil {
		data, ok := s.memory[name]
		if !ok {
			return nil, fmt.Errorf("read %s: %w", name, os.ErrNotExist)
		}
		return data, nil
	}
	if name == "-" || name == "/dev/stdin" {
		return s.readStdin()
	}
	data, err := regular.Read(name, maxFile)
	return bytes.TrimPrefix(data, []byte("\ufeff")), err
}

func (s *sources) readStdin() ([]byte, error) {
	if s.stdin == nil {
		return nil, errors.New("standard input can be read once")
	}
	data, err := io.ReadAll(io.LimitReader(s.stdin, maxFile+1))
	s.stdin = nil
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("standard input has more than %d MiB", maxFile>>20)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), err
}

// path returns where a file that another names is: absolute ones below the root, relative ones beside the other.
func (s *sources) path(name, beside string) string {
	if filepath.IsAbs(name) {
		return filepath.Join(s.root, name)
	}
	return filepath.Join(filepath.Dir(beside), name)
}

// folder returns the files of a folder that keep accepts, by name. Editors' copies and hidden files are left out.
func (s *sources) folder(name string, keep func(string) bool) ([]string, error) {
	if s.memory != nil {
		return nil, os.ErrNotExist
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		n := e.Name()
		if e.IsDir() || n[0] == '.' || strings.HasSuffix(n, "~") || n[0] == '#' || !keep(n) {
			continue
		}
		files = append(files, filepath.Join(name, n))
	}
	return files, nil
}
