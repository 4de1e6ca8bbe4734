//go:build engines

// Package store_test compares storage engines for the state database: bootlab's own log file, Pebble, SQLite and bbolt.
//
//	go test -C bench -tags engines -run xxx -bench . ./store
//
// BenchmarkBatch commits 32 rows at a time, each batch synced, as the DHCP server does under load. BenchmarkOpen opens a store
// of 100,000 rows and commits one batch in a new process, and reports how long that takes and how much resident memory it adds.
// The build tag keeps SQLite's C code out of everybody else's builds.
package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble"
	_ "github.com/mattn/go-sqlite3"
	"go.etcd.io/bbolt"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

const (
	batchRows = 32
	allRows   = 100_000
	childVar  = "BOOTLAB_BENCH_STORE"
)

// An engine commits batches of rows durably.
type engine interface {
	put(keys []string, value []byte) error
	Close() error
}

var engines = []struct {
	name string
	open func(path string) (engine, error)
}{
	{"logfile", openLogfile},
	{"pebble", openPebble},
	{"sqlite", openSQLite},
	{"bbolt", openBbolt},
}

type logfileEngine struct{ *logfile.Store }

func openLogfile(path string) (engine, error) {
	s, _, err := logfile.Open(path)
	return logfileEngine{s}, err
}

func (e logfileEngine) put(keys []string, value []byte) error {
	txns := make([]store.Txn, len(keys))
	for i, k := range keys {
		txns[i] = store.Put(k, value)
	}
	return errors.Join(e.CommitAll(context.Background(), txns)...)
}

type pebbleEngine struct{ *pebble.DB }

func openPebble(path string) (engine, error) {
	db, err := pebble.Open(path, &pebble.Options{Logger: quiet{}})
	return pebbleEngine{db}, err
}

func (e pebbleEngine) put(keys []string, value []byte) error {
	b := e.NewBatch()
	for _, k := range keys {
		if err := b.Set([]byte(k), value, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

type sqliteEngine struct{ *sql.DB }

func openSQLite(path string) (engine, error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS kv (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID")
	return sqliteEngine{db}, err
}

func (e sqliteEngine) put(keys []string, value []byte) error {
	tx, err := e.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	s, err := tx.Prepare("INSERT OR REPLACE INTO kv VALUES (?, ?)")
	if err != nil {
		return err
	}
	defer s.Close()
	for _, k := range keys {
		if _, err := s.Exec(k, value); err != nil {
			return err
		}
	}
	return tx.Commit()
}

type bboltEngine struct{ *bbolt.DB }

var bucket = []byte("b")

func openBbolt(path string) (engine, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	return bboltEngine{db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
}

func (e bboltEngine) put(keys []string, value []byte) error {
	return e.Update(func(tx *bbolt.Tx) error {
		for _, k := range keys {
			if err := tx.Bucket(bucket).Put([]byte(k), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// keys returns rows whose keys look like leases, in the order of a hash.
func keys(from, n int) []string {
	ks := make([]string, n)
	for i := range ks {
		a := uint32(from+i) * 2654435761 >> 15 // 17 bits
		ks[i] = fmt.Sprintf("lease/10.%d.%d.%d", a>>16, a>>8&0xff, a&0xff)
	}
	return ks
}

var value = bytes.Repeat([]byte("v"), 60)

func BenchmarkBatch(b *testing.B) {
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) {
			s, err := e.open(filepath.Join(b.TempDir(), "store"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			n := 0
			for b.Loop() {
				if err := s.put(keys(n, batchRows), value); err != nil {
					b.Fatal(err)
				}
				n += batchRows
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "store")
			s, err := e.open(path)
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; n < allRows; n += 1000 {
				if err := s.put(keys(n, 1000), value); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), childVar+"="+e.name+"="+path)
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				var ms, kib float64
				if _, err := fmt.Sscan(string(out), &ms, &kib); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(ms, "open-ms")
				b.ReportMetric(kib/1024, "resident-MiB")
			}
		})
	}
}

// TestMain is also the process that opens a store, commits one batch, and says how long that took and what memory it needs.
func TestMain(m *testing.M) {
	name, path, child := strings.Cut(os.Getenv(childVar), "=")
	if !child {
		os.Exit(m.Run())
	}
	for _, e := range engines {
		if e.name != name {
			continue
		}
		before, start := resident(), time.Now()
		s, err := e.open(path)
		if err == nil {
			err = s.put(keys(0, batchRows), value)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		took := time.Since(start)
		debug.FreeOSMemory()
		fmt.Println(float64(took.Microseconds())/1000, resident()-before)
		_ = s.Close()
	}
}

// resident returns VmRSS in KiB.
func resident() (kib int) {
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}
