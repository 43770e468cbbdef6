/* What is wrong with a kernel, for its reader: a sentence, the place, and who would say so. */
export class KernelError extends Error {
  /* kind: "syntax", "compile" (Triton's front end refuses it too), "runtime" or "limit". */
  constructor(message, kind = "compile", line = 0, column = 0) {
    super(message);
    this.kind = kind;
    this.line = line;
    this.column = column;
  }
}

/* What Triton's front end refuses, too. */
export const fail = (message) => {
  throw new KernelError(message);
};

/* What this page's engine lacks, not the kernel. */
export const lacking = (name) => {
  throw new KernelError(`${name}: this page's engine does not know it; Triton does`, "limit");
};
