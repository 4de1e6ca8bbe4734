// Package repeats limits reports of what anybody on the network can cause without end: refused requests and errors.
//
// The first report of a kind, from one source and for one reason, is passed on at once. Those that follow are counted, and the count is
// passed on with the last of them: after ten seconds, then in growing intervals of up to a minute while they go on. Both the number of
// keys and the number of keys of one source are bounded; what exceeds a bound shares a key with others. So no client fills a log by
// changing his address or the reason.
//
//	l := repeats.New[line](repeats.Config{Burst: 1, Keys: 128})
//	if l.Add(now, repeats.Key{What: "file_missing", Addr: addr, Reason: "file not found"}, line) {
//		write(line)
//	}
//	for _, s := range l.Due(now) { … } // when l.Next says so
//
// It starts no goroutine, reads no clock and is not safe for concurrent use: its owner holds a lock, and an Alarm.
package repeats
