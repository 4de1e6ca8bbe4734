package dhcpload

import (
	"slices"
	"time"
)

// A Result is what one load saw.
type Result struct {
	Done    int            // exchanges that ended with a right ACK
	Failed  int            // that got no answer, or a wrong one
	Retries int            // messages sent again
	Late    int            // answers to a message that was answered or given up already
	Wrong   map[string]int // answers that were wrong, by what was wrong
	Took    time.Duration

	P50, P99              time.Duration // of the whole exchange
	OfferP50, OfferP99    time.Duration // DISCOVER to OFFER
	AckP50, AckP99        time.Duration // REQUEST to ACK
	whole, toOffer, toAck []time.Duration
}

// PerSecond returns exchanges done per second.
func (r *Result) PerSecond() float64 { return float64(r.Done) / r.Took.Seconds() }

func (r *Result) complain(why string) {
	if r.Wrong == nil {
		r.Wrong = map[string]int{}
	}
	r.Wrong[why]++
}

func (r *Result) took(s *slot, now time.Time, first kind) {
	r.Done++
	r.whole = append(r.whole, now.Sub(s.began))
	r.toAck = append(r.toAck, now.Sub(s.asked))
	if first == discover {
		r.toOffer = append(r.toOffer, s.leg)
	}
}

// join adds up what the sockets saw.
func join(loops []*loop, took time.Duration) Result {
	all := Result{Took: took}
	for _, l := range loops {
		r := &l.seen
		all.Done += r.Done
		all.Failed += r.Failed
		all.Retries += r.Retries
		all.Late += r.Late
		for why, n := range r.Wrong {
			if all.Wrong == nil {
				all.Wrong = map[string]int{}
			}
			all.Wrong[why] += n
		}
		all.whole = append(all.whole, r.whole...)
		all.toOffer = append(all.toOffer, r.toOffer...)
		all.toAck = append(all.toAck, r.toAck...)
	}
	all.P50, all.P99 = Percentiles(all.whole)
	all.OfferP50, all.OfferP99 = Percentiles(all.toOffer)
	all.AckP50, all.AckP99 = Percentiles(all.toAck)
	return all
}

// Percentiles returns the median and the value that 99 in 100 do not exceed. It sorts d. Of nothing both are 0.
func Percentiles(d []time.Duration) (p50, p99 time.Duration) {
	if len(d) == 0 {
		return 0, 0
	}
	slices.Sort(d)
	return d[len(d)/2], d[min(len(d)-1, len(d)*99/100)]
}
