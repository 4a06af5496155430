package guard

import "time"

// Judge applies the rules of the guard contract, section 1, in table order. It is
// pure: the same arguments give the same verdict.
func Judge(p *Policy, f *Facts, r *Record, a *Ask, now time.Time) *Verdict { return nil }
