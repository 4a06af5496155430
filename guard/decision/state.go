package decision

// State is what the lines of the log add up to.
type State struct{}

// Signer is an operator who can sign what loosens (guard contract, section 4).
type Signer interface {
	Name() string
	PublicKey() string // base64, as in the policy
	Sign(payload []byte) ([]byte, error)
}
