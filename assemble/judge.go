package assemble

// A reading is what a template makes of one event type.
type reading struct {
	fault  bool
	stages []stageReading // by stage, at most once a stage
}

// A stageReading is the roles an event type confirms a stage in.
type stageReading struct {
	stage int
	any   bool // whatever the role
	roles []string
}

func (s *stageReading) accepts(role []byte, hasRole bool) bool {
	if s.any {
		return true
	}
	if hasRole {
		for _, r := range s.roles {
			if r == string(role) {
				return true
			}
		}
	}
	return false
}

// read turns stages and exceptions around: from event type to what it does.
func (t *Template) read() map[string]*reading {
	m := map[string]*reading{}
	of := func(eventType string) *reading {
		r := m[eventType]
		if r == nil {
			r = &reading{}
			m[eventType] = r
		}
		return r
	}
	for i, s := range t.Stages {
		for _, w := range s.Match {
			r := of(w.Event)
			if n := len(r.stages); n == 0 || r.stages[n-1].stage != i {
				r.stages = append(r.stages, stageReading{stage: i})
			}
			last := &r.stages[len(r.stages)-1]
			if w.Role == "" {
				last.any = true
			} else {
				last.roles = append(last.roles, w.Role)
			}
		}
	}
	for _, e := range t.Exceptions {
		of(e).fault = true
	}
	return m
}

// table is the template's readings. They are made anew for a Template that was
// not parsed, so that one may be used by several goroutines.
func (t *Template) table() map[string]*reading {
	if t.readings != nil {
		return t.readings
	}
	return t.read()
}

// Pair is an event type and a role an operation has shown. HasRole says that
// the event's role is text; only then does Role count.
type Pair struct {
	Type    string
	Role    string
	HasRole bool
}

// Verdict is what a template says of an operation without its receipt.
type Verdict struct {
	Full         bool
	Missing      []string // ids of required stages without evidence, template order
	MoneyStage   bool     // the stage that shows money to be committed is confirmed
	OutcomeStage bool     // the stage that shows the outcome is confirmed
	Fault        bool     // an event of the template's exceptions was seen
}

// Open reports whether the operation is partial with its money stage confirmed
// and its outcome stage not (trace contract, section 4, "Stage roles").
func (v Verdict) Open() bool { return !v.Full && v.MoneyStage && !v.OutcomeStage }

// Completeness is the word of receipts: "full" or "partial".
func (v Verdict) Completeness() string { return completeness(v.Full) }

func completeness(full bool) string {
	if full {
		return "full"
	}
	return "partial"
}

// Judge gives the verdict on an operation of this shape, the set of pairs its
// events have shown. It equals the verdict of the operation's receipt, since
// neither the order nor the number of events counts (trace contract, section
// 5.4).
func (t *Template) Judge(shape []Pair) Verdict {
	table := t.table()
	confirmed := make([]bool, len(t.Stages))
	fault := false
	for _, p := range shape {
		r := table[p.Type]
		if r == nil {
			continue
		}
		fault = fault || r.fault
		for i := range r.stages {
			if s := &r.stages[i]; !confirmed[s.stage] && s.accepts([]byte(p.Role), p.HasRole) {
				confirmed[s.stage] = true
			}
		}
	}
	return t.verdict(confirmed, fault)
}

func (t *Template) verdict(confirmed []bool, fault bool) Verdict {
	v := Verdict{Fault: fault}
	money, outcome := t.Roles()
	some := false
	for i, s := range t.Stages {
		switch {
		case confirmed[i]:
			some = true
			v.MoneyStage = v.MoneyStage || s.ID == money
			v.OutcomeStage = v.OutcomeStage || s.ID == outcome
		case s.Required:
			v.Missing = append(v.Missing, s.ID)
		}
	}
	v.Full = some && len(v.Missing) == 0 && !fault
	return v
}

// IsException reports whether the template counts events of this type as
// faults. Roles play no part in it.
func (t *Template) IsException(eventType string) bool {
	for _, e := range t.Exceptions {
		if e == eventType {
			return true
		}
	}
	return false
}

// Roles names the stage that shows money to have moved or been committed and
// the stage that shows the outcome settled. Both are "" for a template of one's
// own, whose stages say nothing of the kind (trace contract, section 4, "Stage
// roles").
func (t *Template) Roles() (money, outcome string) {
	switch t.Name {
	case "x402-buyer":
		return "payment", "settlement"
	case "x402-seller", "x402-facilitator":
		return "verification", "settlement"
	case "escrow-arc":
		return "deposit", "disposition"
	}
	return "", ""
}
