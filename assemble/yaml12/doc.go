// Package yaml12 reads one YAML 1.2 document under the core schema, as strictly
// as receipt templates are read by every other reader of them (trace contract,
// section 4).
//
// It exists because no Go library reads templates that way (trace contract,
// section 8, last part): the usual ones refuse %YAML 1.2, escaped surrogate
// pairs, escaped slashes or tab-only blank lines, take U+0085 for a line break,
// accept under-indented flow collections, keep silent about repeated keys and
// have no bound on aliases of this size. A template that means one thing here
// and another thing elsewhere changes the verdict on a payment, so the dialect
// is pinned by this package's own parser and its corpus in testdata.
//
// It owns the grammar, the core schema's reading of scalars, tags, anchors and
// the limit on aliases. It knows nothing of templates, reads no file, and must
// never guess: a document it cannot read exactly is refused with the line.
//
// Where the dialect's best-known reader trips over itself, this package follows
// YAML 1.2. It accepts what that reader refuses by accident: a comment without a
// space after # that stands left of a block value, a comment at the start of a
// line after an entry of a flow collection, a blank line before a key that is a
// flow collection, a line of tabs after a missing value, a list after a byte
// order mark. It refuses what that reader lets pass: a second value behind a flow
// collection ("a: [1]: b"), nameless entries indented too far, a colon on the
// line after its key, text that it would drop silently. It supports neither
// %YAML 1.1 nor the merge tag, and takes what carries another YAML 1.1 tag
// (!!binary, !!timestamp, !!set, !!omap, !!pairs) for a Foreign value.
package yaml12
