package market

import (
	"context"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Method is a way to pay that a filter can name.
type Method struct {
	Slug, Name, Category string
	Own                  bool // an addition of the instance
	Disabled             bool // the instance does not offer it
}

// Methods are the ways to pay of an instance.
type Methods struct {
	Instance string
	Methods  []Method
	Dropped  int // elements that were no methods
	// DisabledUnknown: the instance did not say which it has disabled.
	DisabledUnknown bool
}

// Categories of methods.
const (
	crypto   = "crypto"
	inPerson = "in_person"
	byMail   = "by_mail"
	onLine   = "online"
)

// common are the methods every web page of this kind offers. No resource serves
// them: without this table nobody would know how "wise" is spelt (market contract,
// section 2.4).
var common = commonMethods()

func commonMethods() (all []Method) {
	add := func(category, slug, name string) {
		all = append(all, Method{Slug: slug, Name: name, Category: category})
	}
	for _, ticker := range []string{"btc", "bch", "blurt", "dai", "dash", "dcr", "doge", "eth", "ltc", "xmr", "arrr", "xrp", "sol", "usdt", "usdc", "zec"} {
		add(crypto, "pay_"+ticker, strings.ToUpper(ticker))
	}
	add(inPerson, "barter_goods", "Barter goods")
	add(inPerson, "cash_in_person", "Cash in person")
	add(inPerson, "precious_metals", "Precious metals")
	add(byMail, "cash_by_mail", "Cash by mail")
	for _, m := range [][2]string{
		{"airwallex", "Airwallex"}, {"alipay", "Alipay"}, {"amazon_pay", "Amazon Pay"}, {"apple_pay", "Apple Pay"}, {"bancontact", "Bancontact"},
		{"bitso", "Bitso"}, {"bizum", "Bizum"}, {"blik", "BLIK"}, {"brics_pay", "BRICS Pay"}, {"cash_app", "Cash App"},
		{"cash_machine_code", "Cash machine code"}, {"gcash", "GCash"}, {"google_pay", "Google Pay"}, {"ideal", "iDEAL"},
		{"interac_etransfer", "Interac e-Transfer"}, {"klarna", "Klarna"}, {"mpesa", "M-Pesa"}, {"mercado_pago", "Mercado Pago"}, {"mir", "Mir"},
		{"mtn_momo", "MTN MoMo"}, {"oxxo_pay", "OXXO Pay"}, {"payoneer", "Payoneer"}, {"paypal", "PayPal"}, {"paytm", "Paytm"}, {"payu", "PayU"},
		{"pix", "Pix"}, {"przelewy24", "Przelewy24"}, {"revolut", "Revolut"}, {"shaparak", "Shaparak"}, {"shebapay", "Shebapay"},
		{"sofort", "Sofort"}, {"spei", "SPEI"}, {"square_cash", "Square Cash"}, {"unionpay", "UnionPay"}, {"venmo", "Venmo"},
		{"wechat_pay", "WeChat Pay"}, {"wise", "Wise"}, {"zelle", "Zelle"},
	} {
		add(onLine, m[0], m[1])
	}
	return all
}

// PaymentMethods lists the common methods and those the instance has added, and
// says which of them it has disabled.
func (c *Client) PaymentMethods(ctx context.Context, name string) (*Methods, error) {
	in, err := c.instance(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	additions, err := c.list(ctx, in, "/v1/instance/payment-methods", nil)
	if err != nil {
		return nil, err
	}
	m := &Methods{Instance: in.origin, Methods: slices.Clone(common)}
	for n := range additions.elements.Elements() {
		if own, ok := readMethod(n); ok {
			m.Methods = append(m.Methods, own)
		} else {
			m.Dropped++
		}
	}
	about, err := c.about(ctx, in)
	if err != nil {
		m.DisabledUnknown = true // the list is an answer without it
		return m, nil
	}
	for i := range m.Methods {
		m.Methods[i].Disabled = about.disabledMethods[m.Methods[i].Slug]
	}
	return m, nil
}

func readMethod(n jsjson.Node) (Method, bool) {
	if n.Kind() != jsjson.Object {
		return Method{}, false
	}
	f := &fields{n: n}
	m := Method{Slug: f.form("key", slugForm), Name: f.text("name", 64), Category: f.form("category", wordForm), Own: true}
	if m.Slug == "" {
		m.Slug = f.form("slug", slugForm) // the word of an older document
	}
	return m, m.Slug != ""
}
