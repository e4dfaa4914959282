package layout_test

import (
	"testing"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/model/modelfile"
)

func TestFromFileAgreesWithTheModel(t *testing.T) {
	path := modelfile.Path(t)
	m, err := model.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want, err := layout.Of(m.Config, layout.CPU)
	if err != nil {
		t.Fatal(err)
	}
	l, revision, tokenizer, err := layout.FromFile(path, layout.CPU)
	if err != nil || l != want || revision != m.Revision || tokenizer != m.TokenizerRevision {
		t.Errorf("FromFile = %+v, %x, %x, %v", l, revision, tokenizer, err)
	}
	if _, _, _, err := layout.FromFile(path+".absent", layout.CPU); err == nil {
		t.Error("FromFile of an absent file gives no error")
	}
}
