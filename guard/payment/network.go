package payment

import "strings"

// solana is the CAIP-2 reference of Solana's main network: the first 32
// characters of its genesis hash.
const solana = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"

// words maps the network names of x402 version 1 to CAIP-2 (guard contract,
// section 3; the rest of the list is the version 1 client's own table). A word
// whose chain is told differently by different sources stays out: it is then a
// bucket of its own.
var words = map[string]string{
	"abstract":         "eip155:2741",
	"abstract-testnet": "eip155:11124",
	"arbitrum":         "eip155:42161",
	"avalanche":        "eip155:43114",
	"avalanche-fuji":   "eip155:43113",
	"base":             "eip155:8453",
	"base-sepolia":     "eip155:84532",
	"bsc":              "eip155:56",
	"educhain":         "eip155:41923",
	"ethereum":         "eip155:1",
	"iotex":            "eip155:4689",
	"mainnet":          "eip155:1",
	"megaeth":          "eip155:4326",
	"monad":            "eip155:143",
	"optimism":         "eip155:10",
	"peaq":             "eip155:3338",
	"polygon":          "eip155:137",
	"polygon-amoy":     "eip155:80002",
	"sei":              "eip155:1329",
	"sei-testnet":      "eip155:1328",
	"sepolia":          "eip155:11155111",
	"solana":           solana,
	"solana-devnet":    "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
	"stable":           "eip155:988",
	"story":            "eip155:1514",

	// A misspelling of the main network's reference that is in circulation.
	// Left apart, one network would be two buckets with a limit each.
	"solana:5eykt4UsFv8P8NJdTREpY1vzAqKqKvdp": solana,
}

// Network is the CAIP-2 id of a network given as such or as a word of x402
// version 1. Words are compared exactly. An unknown word, or text that only
// resembles CAIP-2, is its own bucket and not known (guard contract, section 3).
// Empty text is no network.
func Network(word string) (caip2 string, known bool) {
	if id, ok := words[word]; ok {
		return id, true
	}
	if isCAIP2(word) {
		return word, true
	}
	word = bounded(word)
	if strings.ContainsAny(word, "/%") {
		// An asset key is cut at its first slash.
		word = strings.NewReplacer("%", "%25", "/", "%2F").Replace(word)
	}
	return word, false
}

// isCAIP2 reports whether s is a chain id by CAIP-2. A chain number with a
// leading zero would be a second spelling of the same chain, so it is not.
func isCAIP2(s string) bool {
	space, ref, ok := strings.Cut(s, ":")
	if !ok || len(space) < 3 || len(space) > 8 || len(ref) < 1 || len(ref) > 32 {
		return false
	}
	for i := 0; i < len(space); i++ {
		if c := space[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	for i := 0; i < len(ref); i++ {
		if c := ref[i]; !alnum(c) && c != '-' && c != '_' {
			return false
		}
	}
	return space != "eip155" || isAmount(ref)
}

// AssetKey is what an asset is known by everywhere: the CAIP-2 id of its network,
// a slash, and its address, EVM addresses in lower case. It is empty when either
// half is missing. A symbol is never an asset (guard contract, section 3).
func AssetKey(network, asset string) string {
	if network == "" || asset == "" {
		return ""
	}
	id, _ := Network(network)
	return id + "/" + assetText(asset)
}

func assetText(asset string) string {
	if evm(asset) {
		return strings.ToLower(asset)
	}
	return bounded(asset)
}
