package dnsd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"
)

// The lengths and lifetimes of DNS cookies (RFC 7873, RFC 9018).
const (
	clientCookieLen = 8
	serverCookieLen = 16 // of version 1, the one that servers of different make share
	cookieLen       = clientCookieLen + serverCookieLen
	cookieOptionLen = 4 + cookieLen
	maxCookieLen    = 40

	cookieOld    = time.Hour // RFC 9018 section 4.3
	cookieRenew  = time.Hour / 2
	cookieFuture = 5 * time.Minute
)

// A cookieState is what a query says of itself by its cookie.
type cookieState uint8

const (
	cookieNone   cookieState = iota // it has none
	cookieClient                    // it has a client's cookie, and none of ours, or one that is not valid
	cookieValid                     // it has one of ours: its source is not forged
)

// checkCookie looks at the cookie of a query and replaces it by the one for the reply.
func (q *query) checkCookie(secret, previous *[16]byte, from netip.Addr, now time.Time) cookieState {
	if q.cookieLen == 0 {
		return cookieNone
	}
	var want [serverCookieLen]byte
	got := q.cookie[clientCookieLen:cookieLen]
	if q.cookieLen == cookieLen && got[0] == 1 {
		made := time.Unix(unwrapTime(binary.BigEndian.Uint32(got[4:]), now), 0)
		age := now.Sub(made)
		serverCookie(&want, secret, q.cookie[:clientCookieLen], got[:8], from)
		current := string(want[:]) == string(got)
		if !current {
			serverCookie(&want, previous, q.cookie[:clientCookieLen], got[:8], from)
		}
		if string(want[:]) == string(got) && age < cookieOld && age > -cookieFuture {
			if age >= cookieRenew || age < 0 || !current {
				q.makeCookie(secret, from, now)
			}
			return cookieValid
		}
	}
	q.makeCookie(secret, from, now)
	return cookieClient
}

// makeCookie writes a new server cookie behind the client's.
func (q *query) makeCookie(secret *[16]byte, from netip.Addr, now time.Time) {
	var head [8]byte
	head[0] = 1
	binary.BigEndian.PutUint32(head[4:], uint32(now.Unix()))
	var c [serverCookieLen]byte
	serverCookie(&c, secret, q.cookie[:clientCookieLen], head[:], from)
	copy(q.cookie[clientCookieLen:], c[:])
}

// unwrapTime returns the time in seconds that is nearest to now among those that a cookie's 32 bits may mean (RFC 9018 section 4.3).
func unwrapTime(t uint32, now time.Time) int64 {
	n := now.Unix()
	return n + int64(int32(t-uint32(n)))
}

// serverCookie computes a server cookie of version 1 (RFC 9018 section 4): head is its version, reserved octets and time.
func serverCookie(c *[serverCookieLen]byte, secret *[16]byte, client, head []byte, from netip.Addr) {
	var msg [clientCookieLen + 8 + 16]byte
	n := copy(msg[:], client)
	n += copy(msg[n:], head)
	if from.Is4() {
		a := from.As4()
		n += copy(msg[n:], a[:])
	} else {
		a := from.As16()
		n += copy(msg[n:], a[:])
	}
	copy(c[:], head)
	binary.LittleEndian.PutUint64(c[8:], sipHash(secret, msg[:n]))
}

// sipHash is SipHash-2-4 (Aumasson and Bernstein, 2012).
func sipHash(key *[16]byte, msg []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(msg)) << 56
	for ; len(msg) >= 8; msg = msg[8:] {
		v.add(binary.LittleEndian.Uint64(msg))
	}
	for i, b := range msg {
		last |= uint64(b) << (8 * i)
	}
	v.add(last)
	v[2] ^= 0xff
	for range 4 {
		v.round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

type sipState [4]uint64

func (v *sipState) add(m uint64) {
	v[3] ^= m
	v.round()
	v.round()
	v[0] ^= m
}

func (v *sipState) round() {
	v[0] += v[1]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[3]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] += v[3]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] += v[1]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[2] = bits.RotateLeft64(v[2], 32)
}

// cookieSecretLife is after how long a secret is replaced. RFC 7873 section 7.1 asks for 26 hours at most.
const cookieSecretLife = 24 * time.Hour

// CookieSecrets are the secrets that server cookies are made with (RFC 9018 section 5). Cookies of the previous one are valid until they are
// too old.
type CookieSecrets struct {
	Current  [16]byte  `json:"current"`
	Previous [16]byte  `json:"previous"`
	Since    time.Time `json:"since"` // when Current was made; zero: there is none
}

// Cookies keep the secrets of cookies over restarts.
type Cookies interface {
	// Load returns what was kept; nothing is no error.
	Load(context.Context) (CookieSecrets, error)
	// Keep stores secrets. They are in use once it has returned without an error.
	Keep(context.Context, CookieSecrets) error
}

// newCookieSecret returns a secret.
func newCookieSecret() (secret [16]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// rollCookies takes the kept secrets at its first call, and replaces the current one when its time is over. Without a store, or while it
// fails, the secrets are those of this process.
func (s *Server) rollCookies(ctx context.Context) {
	if s.deps.Cookies == nil {
		return
	}
	now := s.deps.Now()
	have := *s.cookies.Load()
	if !s.cookiesLoaded {
		kept, err := s.deps.Cookies.Load(ctx)
		if err != nil {
			s.warnCookies(err)
			return
		}
		s.cookiesLoaded = true
		if have = kept; !kept.Since.IsZero() {
			s.cookies.Store(&kept)
		}
	}
	if age := now.Sub(have.Since); age >= 0 && age < cookieSecretLife {
		return
	}
	next := CookieSecrets{Current: newCookieSecret(), Previous: s.cookies.Load().Current, Since: now.UTC()}
	if err := s.deps.Cookies.Keep(ctx, next); err != nil {
		s.warnCookies(err)
		return
	}
	s.cookieWarned = false
	s.cookies.Store(&next)
}

// warnCookies logs an error of the store once.
func (s *Server) warnCookies(err error) {
	if !s.cookieWarned {
		s.log.Warn("the secret of DNS cookies is not stored: the present one stays in use", keyErr, err)
	}
	s.cookieWarned = true
}

// checkCookie looks at the cookie of a query and replaces it by the one for the reply.
func (s *Server) checkCookie(q *query, from netip.Addr) cookieState {
	secrets, now := s.cookies.Load(), s.deps.Now()
	return q.checkCookie(&secrets.Current, &secrets.Previous, from, now)
}
