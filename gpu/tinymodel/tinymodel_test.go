package tinymodel

import (
	"testing"

	"leasehold.dev/model"
	"leasehold.dev/model/modelfile"
)

func TestTheFileIsAModelWithTheRealTokenizer(t *testing.T) {
	tiny := Load(t, Options{Context: 512})
	if c := tiny.Config; c.ContextLength != 512 || c.Layers != layers || c.HeadDim != head {
		t.Errorf("config is %+v", c)
	}
	full, err := model.Load(modelfile.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if tiny.TokenizerRevision != full.TokenizerRevision {
		t.Error("the tokenizer is not the real file's")
	}
	if tiny.Revision == full.Revision {
		t.Error("the weights are the real file's")
	}
	if Load(t, Options{Context: 512, Seed: 1}).Revision == tiny.Revision {
		t.Error("two seeds gave equal weights")
	}
	if Load(t, Options{Context: 512}).Revision != tiny.Revision {
		t.Error("one seed gave two files")
	}
}
