package transport

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// How many buckets are kept. A client whose bucket was dropped begins with a
// full one: that many addresses at one time is more than a bucket can stop.
const (
	clientBuckets  = 8192
	subjectBuckets = 1024
)

// buckets are token buckets of a fixed number of keys, the ones used last
// (market contract, W11).
type buckets[K comparable] struct {
	perSecond rate.Limit
	size      int

	mu   sync.Mutex
	kept *simplelru.LRU[K, *rate.Limiter]
}

// newBuckets makes buckets that hold burst tokens and regain perMinute.
func newBuckets[K comparable](keys, perMinute, burst int) *buckets[K] {
	kept, err := simplelru.NewLRU[K, *rate.Limiter](keys, nil)
	if err != nil {
		panic(err) // keys is a positive constant
	}
	return &buckets[K]{perSecond: rate.Limit(float64(perMinute) / 60), size: burst, kept: kept}
}

// take takes a token of a key, or says how many seconds from now there is one.
func (b *buckets[K]) take(key K, now time.Time) (wait int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket, found := b.kept.Get(key)
	if !found {
		bucket = rate.NewLimiter(b.perSecond, b.size)
		b.kept.Add(key, bucket)
	}
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return max(1, int(math.Ceil(missing/float64(b.perSecond)))), false
}
