package mcp

import (
	"context"
	"errors"
	"strings"

	mcplib "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

const (
	resourceScheme   = "trace://"
	resourceTemplate = "trace://{run}/{operation}"
	listedResources  = 50

	// resourceBound is no cap on receipts but a guard against a few: values
	// that strangers nest thousands deep grow a thousandfold by indentation.
	resourceBound = 512 << 20
)

// traceResources offers receipts as resources: byte for byte what a stored
// receipt file holds, and without a cap, for a host that reads it into a file.
func traceResources(s *service) {
	s.mcp.AddResourceTemplate(
		mcplib.NewResourceTemplate(resourceTemplate, "receipt",
			mcplib.WithTemplateTitle("Receipt of an operation"),
			mcplib.WithTemplateDescription("The receipt of one operation, always judged by the template x402-buyer, byte for byte as a receipt file holds it. "+
				"Both ids are exact and percent-encoded: every byte but A-Z a-z 0-9 - . _ ~ as %XX."),
			mcplib.WithTemplateMIMEType("application/json"),
		),
		s.readReceipt)
	s.mcp.GetHooks().AddAfterListResources(s.listResources)
}

// resourceURI is the resource of an operation.
func resourceURI(r ingest.Ref) string {
	return resourceScheme + percentEncode(r.Run) + "/" + percentEncode(r.Operation)
}

// percentEncode keeps RFC 3986's unreserved characters and writes every other
// byte of the WTF-8 text as %XX.
func percentEncode(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if c := text[i]; unreserved(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// parseResource reads a resource's URI. Only unreserved characters and %XX may
// stand in an id, so no id has two readings.
func parseResource(uri string) (ingest.Ref, error) {
	rest, ok := strings.CutPrefix(uri, resourceScheme)
	run, operation, two := strings.Cut(rest, "/")
	if ok && two {
		r, okRun := percentDecode(run)
		o, okOp := percentDecode(operation)
		if okRun && okOp && r != "" && o != "" {
			return ingest.Ref{Run: r, Operation: o}, nil
		}
	}
	return ingest.Ref{}, noResource(uri)
}

func noResource(uri string) *errcode.Error {
	return errcode.New(errcode.Input, resourceScheme+"RUN/OPERATION with both ids percent-encoded, every byte but A-Z a-z 0-9 - . _ ~ as %XX",
		"%s is no receipt's address", plain.Quote(uri, plain.Detail))
}

func percentDecode(text string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case unreserved(c):
			b.WriteByte(c)
		case c == '%' && i+2 < len(text):
			high, ok1 := unhex(text[i+1])
			low, ok2 := unhex(text[i+2])
			if !ok1 || !ok2 {
				return "", false
			}
			b.WriteByte(high<<4 | low)
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), true
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func (s *service) readReceipt(ctx context.Context, request mcplib.ReadResourceRequest) (contents []mcplib.ResourceContents, err error) {
	fail := func(err error) ([]mcplib.ResourceContents, error) {
		coded := s.worded(ctx, "resource", err)
		if info := callOf(ctx); info != nil {
			info.errorCode = resourceErrorCode(ctx, coded.Code)
		}
		return nil, errors.New(errorText(coded))
	}
	defer func() {
		if r := recover(); r != nil {
			s.panicked(ctx, "resource", r)
			contents, err = nil, errors.New(panicText)
		}
	}()
	wanted, err := parseResource(request.Params.URI)
	if err != nil {
		return fail(err)
	}
	r, err := s.traces.Receipt(ctx, wanted, "")
	if err != nil {
		return fail(err)
	}
	if r.Bound(2, 0) > resourceBound {
		hint := "get_receipt with events: false"
		if line := commandLine("explain", r.Ref, assemble.DefaultTemplate); line != "" {
			hint += ", or run `" + line + "` with the server's own --dir"
		}
		return fail(errcode.New(errcode.ReceiptTooLarge, hint,
			"the receipt of operation %s in run %s would not fit in memory", shownID(r.Ref), plain.Quote(r.Run, shortText)))
	}
	content := mcplib.TextResourceContents{
		URI:      request.Params.URI,
		MIMEType: "application/json",
		Text:     string(append(r.Append(nil, 2, 0), '\n')),
	}
	if r.Damaged {
		// The text is the receipt and nothing else, so this goes beside it.
		content.Meta = map[string]any{"settlewatch/damaged": true}
	}
	return []mcplib.ResourceContents{content}, nil
}

// resourceErrorCode is the protocol's code for what kept a resource from being
// read; 0 leaves the library's (an internal error).
func resourceErrorCode(ctx context.Context, code errcode.Code) int {
	switch code {
	case errcode.Input, errcode.OperationAmbiguous:
		return mcplib.INVALID_PARAMS
	case errcode.NoRuns, errcode.RunNotFound, errcode.OperationNotFound:
		if server.IsModernRequest(ctx) {
			return mcplib.INVALID_PARAMS
		}
		return mcplib.RESOURCE_NOT_FOUND
	}
	return 0
}

// listResources names the newest operations that have an address, in one page:
// something for a host to offer. list_operations walks all of them.
func (s *service) listResources(ctx context.Context, _ any, request *mcplib.ListResourcesRequest, result *mcplib.ListResourcesResult) {
	result.NextCursor = ""
	if request.Params.Cursor != "" {
		return
	}
	page, err := s.traces.List(ctx, ingest.Query{Limit: listedResources})
	if err != nil {
		var coded *errcode.Error
		if !errors.As(err, &coded) {
			s.logOf(ctx).Error("a request failed", "request", "resources/list", "error", err)
		}
		return // this method has no way to say why; the tools do
	}
	size := 0
	for _, row := range page.Operations {
		if row.Null {
			continue
		}
		uri := resourceURI(row.Ref)
		// Names and descriptions are cut, an address cannot be.
		if size += len(uri) + 800; size > answerLimit-envelope {
			break
		}
		result.Resources = append(result.Resources, mcplib.Resource{
			URI:         uri,
			Name:        plain.Clean(row.Operation, shortText),
			Description: "run " + plain.Clean(row.Run, shortText) + ": " + row.Completeness + ", settlement " + row.Settlement,
			MIMEType:    "application/json",
		})
	}
}
