// Attention and an MLP with squared ReLU side by side, with a learned scale; two
// heads, smoothed labels and a z-loss, which are reported apart, as is what comes
// out of the first layer. As a front end may write it: without a word
// on layers, vocabulary or name, and for another batch and sequence than any run.
module {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @norm.0 : tensor<8xf32> init<mean = 1.0, std = 0.0>
  nn.parameter @q.0 : tensor<8x2x1x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @k.0 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @v.0 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @o.0 : tensor<2x1x4x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @up.0 : tensor<8x16xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @down.0 : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @gain.0 : tensor<f32> init<mean = 1.0, std = 0.0>
  nn.parameter @norm.1 : tensor<8xf32> init<mean = 1.0, std = 0.0>
  nn.parameter @q.1 : tensor<8x2x1x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @k.1 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @v.1 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @o.1 : tensor<2x1x4x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @up.1 : tensor<8x16xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @down.1 : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @gain.1 : tensor<f32> init<mean = 1.0, std = 0.0>
  nn.parameter @norm.2 : tensor<8xf32> init<mean = 1.0, std = 0.0>
  nn.parameter @q.2 : tensor<8x2x1x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @k.2 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @v.2 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @o.2 : tensor<2x1x4x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @up.2 : tensor<8x16xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @down.2 : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @gain.2 : tensor<f32> init<mean = 1.0, std = 0.0>
  nn.parameter @second : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  func.func @loss(%tokens: tensor<2x5xi32>, %targets: tensor<2x5xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "z_loss"}, tensor<f32> {nn.loss = "second"}, tensor<f32> {nn.loss = "early"}) {
    %table = nn.read @embed value : tensor<16x8xf32>
    %x0 = nn.embedding %table, %tokens : (tensor<16x8xf32>, tensor<2x5xi32>) -> tensor<2x5x8xf32>
    %norm0 = nn.read @norm.0 value : tensor<8xf32>
    %q0 = nn.read @q.0 value : tensor<8x2x1x4xf32>
    %k0 = nn.read @k.0 value : tensor<8x2x4xf32>
    %v0 = nn.read @v.0 value : tensor<8x2x4xf32>
    %o0 = nn.read @o.0 value : tensor<2x1x4x8xf32>
    %up0 = nn.read @up.0 value : tensor<8x16xf32>
    %down0 = nn.read @down.0 value : tensor<16x8xf32>
    %gain0 = nn.read @gain.0 value : tensor<f32>
    %n0, %r0 = nn.rms_norm %x0, %norm0 epsilon 1.0e-05 : (tensor<2x5x8xf32>, tensor<8xf32>) -> (tensor<2x5x8xf32>, tensor<2x5xf32>)
    %qs0 = nn.matmul %n0, %q0 "bsh,hgrd->bsgrd" : (tensor<2x5x8xf32>, tensor<8x2x1x4xf32>) -> tensor<2x5x2x1x4xf32>
    %ks0 = nn.matmul %n0, %k0 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %vs0 = nn.matmul %n0, %v0 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %qr0 = nn.rope %qs0 theta 100.0 : tensor<2x5x2x1x4xf32>
    %kr0 = nn.rope %ks0 theta 100.0 : tensor<2x5x2x4xf32>
    %a0, %lse0 = nn.attention %qr0, %kr0, %vs0 scale 0.5 : (tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>) -> (tensor<2x5x2x1x4xf32>, tensor<2x2x1x5xf32>)
    %seen0 = nn.matmul %a0, %o0 "bsgrd,grdh->bsh" : (tensor<2x5x2x1x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x5x8xf32>
    %u0 = nn.matmul %n0, %up0 "bsh,hf->bsf" : (tensor<2x5x8xf32>, tensor<8x16xf32>) -> tensor<2x5x16xf32>
    %zero0 = nn.fill 0.0 : tensor<2x5x16xf32>
    %low0 = nn.min %u0, %zero0 : tensor<2x5x16xf32>
    %relu0 = nn.sub %u0, %low0 : tensor<2x5x16xf32>
    %square0 = nn.mul %relu0, %relu0 : tensor<2x5x16xf32>
    %m0 = nn.matmul %square0, %down0 "bsf,fh->bsh" : (tensor<2x5x16xf32>, tensor<16x8xf32>) -> tensor<2x5x8xf32>
    %both0 = nn.add %seen0, %m0 : tensor<2x5x8xf32>
    %gains0 = nn.broadcast %gain0 dims [] : tensor<f32> -> tensor<2x5x8xf32>
    %scaled0 = nn.mul %both0, %gains0 : tensor<2x5x8xf32>
    %x1 = nn.add %x0, %scaled0 : tensor<2x5x8xf32>
    %norm1 = nn.read @norm.1 value : tensor<8xf32>
    %q1 = nn.read @q.1 value : tensor<8x2x1x4xf32>
    %k1 = nn.read @k.1 value : tensor<8x2x4xf32>
    %v1 = nn.read @v.1 value : tensor<8x2x4xf32>
    %o1 = nn.read @o.1 value : tensor<2x1x4x8xf32>
    %up1 = nn.read @up.1 value : tensor<8x16xf32>
    %down1 = nn.read @down.1 value : tensor<16x8xf32>
    %gain1 = nn.read @gain.1 value : tensor<f32>
    %n1, %r1 = nn.rms_norm %x1, %norm1 epsilon 1.0e-05 : (tensor<2x5x8xf32>, tensor<8xf32>) -> (tensor<2x5x8xf32>, tensor<2x5xf32>)
    %qs1 = nn.matmul %n1, %q1 "bsh,hgrd->bsgrd" : (tensor<2x5x8xf32>, tensor<8x2x1x4xf32>) -> tensor<2x5x2x1x4xf32>
    %ks1 = nn.matmul %n1, %k1 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %vs1 = nn.matmul %n1, %v1 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %qr1 = nn.rope %qs1 theta 100.0 : tensor<2x5x2x1x4xf32>
    %kr1 = nn.rope %ks1 theta 100.0 : tensor<2x5x2x4xf32>
    %a1, %lse1 = nn.attention %qr1, %kr1, %vs1 scale 0.5 : (tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>) -> (tensor<2x5x2x1x4xf32>, tensor<2x2x1x5xf32>)
    %seen1 = nn.matmul %a1, %o1 "bsgrd,grdh->bsh" : (tensor<2x5x2x1x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x5x8xf32>
    %u1 = nn.matmul %n1, %up1 "bsh,hf->bsf" : (tensor<2x5x8xf32>, tensor<8x16xf32>) -> tensor<2x5x16xf32>
    %zero1 = nn.fill 0.0 : tensor<2x5x16xf32>
    %low1 = nn.min %u1, %zero1 : tensor<2x5x16xf32>
    %relu1 = nn.sub %u1, %low1 : tensor<2x5x16xf32>
    %square1 = nn.mul %relu1, %relu1 : tensor<2x5x16xf32>
    %m1 = nn.matmul %square1, %down1 "bsf,fh->bsh" : (tensor<2x5x16xf32>, tensor<16x8xf32>) -> tensor<2x5x8xf32>
    %both1 = nn.add %seen1, %m1 : tensor<2x5x8xf32>
    %gains1 = nn.broadcast %gain1 dims [] : tensor<f32> -> tensor<2x5x8xf32>
    %scaled1 = nn.mul %both1, %gains1 : tensor<2x5x8xf32>
    %x2 = nn.add %x1, %scaled1 : tensor<2x5x8xf32>
    %norm2 = nn.read @norm.2 value : tensor<8xf32>
    %q2 = nn.read @q.2 value : tensor<8x2x1x4xf32>
    %k2 = nn.read @k.2 value : tensor<8x2x4xf32>
    %v2 = nn.read @v.2 value : tensor<8x2x4xf32>
    %o2 = nn.read @o.2 value : tensor<2x1x4x8xf32>
    %up2 = nn.read @up.2 value : tensor<8x16xf32>
    %down2 = nn.read @down.2 value : tensor<16x8xf32>
    %gain2 = nn.read @gain.2 value : tensor<f32>
    %n2, %r2 = nn.rms_norm %x2, %norm2 epsilon 1.0e-05 : (tensor<2x5x8xf32>, tensor<8xf32>) -> (tensor<2x5x8xf32>, tensor<2x5xf32>)
    %qs2 = nn.matmul %n2, %q2 "bsh,hgrd->bsgrd" : (tensor<2x5x8xf32>, tensor<8x2x1x4xf32>) -> tensor<2x5x2x1x4xf32>
    %ks2 = nn.matmul %n2, %k2 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %vs2 = nn.matmul %n2, %v2 "bsh,hgd->bsgd" : (tensor<2x5x8xf32>, tensor<8x2x4xf32>) -> tensor<2x5x2x4xf32>
    %qr2 = nn.rope %qs2 theta 100.0 : tensor<2x5x2x1x4xf32>
    %kr2 = nn.rope %ks2 theta 100.0 : tensor<2x5x2x4xf32>
    %a2, %lse2 = nn.attention %qr2, %kr2, %vs2 scale 0.5 : (tensor<2x5x2x1x4xf32>, tensor<2x5x2x4xf32>, tensor<2x5x2x4xf32>) -> (tensor<2x5x2x1x4xf32>, tensor<2x2x1x5xf32>)
    %seen2 = nn.matmul %a2, %o2 "bsgrd,grdh->bsh" : (tensor<2x5x2x1x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x5x8xf32>
    %u2 = nn.matmul %n2, %up2 "bsh,hf->bsf" : (tensor<2x5x8xf32>, tensor<8x16xf32>) -> tensor<2x5x16xf32>
    %zero2 = nn.fill 0.0 : tensor<2x5x16xf32>
    %low2 = nn.min %u2, %zero2 : tensor<2x5x16xf32>
    %relu2 = nn.sub %u2, %low2 : tensor<2x5x16xf32>
    %square2 = nn.mul %relu2, %relu2 : tensor<2x5x16xf32>
    %m2 = nn.matmul %square2, %down2 "bsf,fh->bsh" : (tensor<2x5x16xf32>, tensor<16x8xf32>) -> tensor<2x5x8xf32>
    %both2 = nn.add %seen2, %m2 : tensor<2x5x8xf32>
    %gains2 = nn.broadcast %gain2 dims [] : tensor<f32> -> tensor<2x5x8xf32>
    %scaled2 = nn.mul %both2, %gains2 : tensor<2x5x8xf32>
    %x3 = nn.add %x2, %scaled2 : tensor<2x5x8xf32>
    %logits = nn.matmul %x3, %table "bsh,vh->bsv" : (tensor<2x5x8xf32>, tensor<16x8xf32>) -> tensor<2x5x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x5x16xf32>, tensor<2x5xi32>) -> (tensor<f32>, tensor<f32>)
    // Smoothing: what all classes lose, on the average. Its logarithm is the z-loss's, too.
    %top = nn.reduce max %logits dims [2] : tensor<2x5x16xf32> -> tensor<2x5xf32>
    %shift = nn.stop_gradient %top : tensor<2x5xf32>
    %shifts = nn.broadcast %shift dims [0, 1] : tensor<2x5xf32> -> tensor<2x5x16xf32>
    %centred = nn.sub %logits, %shifts : tensor<2x5x16xf32>
    %powers = nn.exp %centred : tensor<2x5x16xf32>
    %total = nn.reduce sum %powers dims [2] : tensor<2x5x16xf32> -> tensor<2x5xf32>
    %log = nn.log %total : tensor<2x5xf32>
    %z = nn.add %log, %shift : tensor<2x5xf32>
    %all = nn.reduce sum %logits dims [2] : tensor<2x5x16xf32> -> tensor<2x5xf32>
    %mean = nn.scale %all by 0.0625 : tensor<2x5xf32>
    %lost = nn.sub %z, %mean : tensor<2x5xf32>
    %valid = nn.valid %targets ignore -100 : tensor<2x5xi32> -> tensor<2x5xf32>
    %counted = nn.mul %lost, %valid : tensor<2x5xf32>
    %smooth = nn.reduce sum %counted dims [0, 1] : tensor<2x5xf32> -> tensor<f32>
    %zz = nn.mul %z, %z : tensor<2x5xf32>
    %zv = nn.mul %zz, %valid : tensor<2x5xf32>
    %zs = nn.reduce sum %zv dims [0, 1] : tensor<2x5xf32> -> tensor<f32>
    // Another head.
    %other = nn.read @second value : tensor<16x8xf32>
    %more = nn.matmul %x3, %other "bsh,vh->bsv" : (tensor<2x5x8xf32>, tensor<16x8xf32>) -> tensor<2x5x16xf32>
    %sum2, %count2 = nn.softmax_cross_entropy %more, %targets ignore -100 : (tensor<2x5x16xf32>, tensor<2x5xi32>) -> (tensor<f32>, tensor<f32>)
    %l1 = nn.scale %sum by 0.875 : tensor<f32>
    %l2 = nn.scale %smooth by 0.125 : tensor<f32>
    %l3 = nn.scale %zs by 0.0078125 : tensor<f32>
    %l4 = nn.scale %sum2 by 0.5 : tensor<f32>
    %l12 = nn.add %l1, %l2 : tensor<f32>
    %l123 = nn.add %l12, %l3 : tensor<f32>
    %l1234 = nn.add %l123, %l4 : tensor<f32>
    %early = nn.mul %x1, %x1 : tensor<2x5x8xf32>
    %squares = nn.reduce sum %early dims [0, 1, 2] : tensor<2x5x8xf32> -> tensor<f32>
    return %l1234, %count, %zs, %sum2, %squares : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}
