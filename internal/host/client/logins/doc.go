// Package logins limits how many passwords or tokens one source may try, and keeps the sessions of those that were right.
//
//	l := logins.New(time.Now)
//	switch l.Try(from, func() bool { return isPassword(shown) }) {
//	case logins.Accepted: …
//	case logins.Rejected: …   // counted
//	case logins.Limited: … // not looked at
//	}
//
// A source is an IPv4 address or an IPv6 /64. It has ten tries, and then one in ten seconds. A right one is never counted. The
// number of sources that are known is limited: beyond it, new ones share a limit. Sessions end when they are not used.
package logins
