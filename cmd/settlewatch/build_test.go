package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// Names of up to 255 bytes are stored, longer ones refused (trace contract, section
// 7), the same way every time.
func TestReceiptsAreStoredUnderNamesOfUpTo255Bytes(t *testing.T) {
	template, err := assemble.Library{}.Resolve(assemble.DefaultTemplate, readTemplateFile)
	if err != nil {
		t.Fatal(err)
	}
	for size := 230; size <= 257; size++ {
		id := strings.Repeat("o", size-len("r~.json"))
		run, err := assemble.Assemble(template.Template, []byte(`{"event_id":"e","event_type":"x402.payment.required","occurred_at":"2026-11-30T09:00:00.000Z","context_id":"`+id+`","seq":0}`+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "out")
		stored, err := storeReceipts(t.Context(), dir, []assemble.Built{{ID: "r", Run: run}})
		if size > 255 {
			if err == nil || errcode.Of(err).Code != errcode.Input || !strings.Contains(err.Error(), "bytes long, over 255") {
				t.Errorf("a name of %d bytes: %v", size, err)
			}
			continue
		}
		entries, _ := os.ReadDir(dir)
		if err != nil || stored != 1 || len(entries) != 1 || len(entries[0].Name()) != size {
			t.Errorf("a name of %d bytes: %d stored, %v, %v", size, stored, entries, err)
		}
	}
}
